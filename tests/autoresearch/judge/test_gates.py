"""Each gate by hand: what passes, what does not, and the reason that it gives."""

import numpy as np
import pytest

from autoresearch.config import Gates, Guard, Measure
from autoresearch.judge.earlier import CLAIMS, objections_to
from autoresearch.judge.gates import mechanism, rung, screen, seeds, smoke
from autoresearch.types.artifact import TrainArtifact
from autoresearch.types.run import Failure
from autoresearch.types.verdict import FailedRun

PROGRESS, OFF = Measure("progress", 1, 2.0), Measure("off", -1, 1.0)
GATES = Gates(PROGRESS, guards=(Guard(OFF, 0.1, 0.3),), effect=0.05, cap=200, alpha=0.5)


def rows(progress, off=0.0):
    progress = np.asarray(progress, float)
    off = np.broadcast_to(off, progress.shape)
    return {str(i): {"progress": float(p), "off": float(o)}
            for i, (p, o) in enumerate(zip(progress, off, strict=True))}  # fmt: skip


def run_of(screens, **config):
    return TrainArtifact({"a": 1, "b": 2} | config, "code", 1, screens, {})


class TestSmoke:
    def test_a_healthy_run_passes(self):
        candidate, control = run_of({"spinning": 0.0}, a=3), run_of({"spinning": 0.0})
        assert smoke(candidate, control, control.config, {"a": 3}).passed

    def test_a_failure_that_the_parent_does_not_show_stops_it(self):
        candidate, control = run_of({"spinning": 1.0}, a=3), run_of({"spinning": 0.0})
        verdict = smoke(candidate, control, control.config, {"a": 3})
        assert not verdict.passed and verdict.reasons == [
            "spinning shows, which the parent does not show"
        ]
        assert smoke(candidate, run_of({"spinning": 1.0}), control.config, {"a": 3}).passed

    def test_what_was_not_measured_is_null_and_no_failure(self):
        candidate = run_of({"spinning": None}, a=3)
        verdict = smoke(candidate, run_of({}), {"a": 1, "b": 2}, {"a": 3})
        assert verdict.passed and verdict.screens == {"spinning": None}

    def test_a_run_of_another_configuration_stops_it(self):
        candidate = run_of({}, a=1)
        verdict = smoke(candidate, run_of({}), {"a": 1, "b": 2}, {"a": 3})
        assert verdict.reasons == ["a is 1, not the proposed 3"]

    def test_a_failed_run_has_a_type_and_no_number(self):
        verdict = FailedRun.of(Failure.TIMEOUT, "longer than 3 s")
        assert verdict.plain() == {
            "passed": False,
            "reasons": ["timeout: longer than 3 s"],
            "failure": "timeout",
        }


def test_a_rung_keeps_the_better_half():
    verdict = rung({"a": 0.1, "b": 0.5, "c": 0.3}, 0.2, 1, 2)
    assert [name for name in verdict if verdict[name].passed] == ["b", "c"]
    assert verdict["a"].reasons == ["rank 3 of 3"] and verdict["a"].control == 0.2
    assert [n for n, t in rung({"a": 1, "b": 2, "c": 3}, 0, -1, 3).items() if t.passed] == ["a"]


class TestScreen:
    rng = np.random.default_rng(0)
    parent = rng.normal(0.5, 0.1, 200).clip(0, 1)

    def test_a_gain_wins_as_soon_as_it_is_proved(self):
        verdict = screen(rows(self.parent + 0.3), rows(self.parent), GATES)
        assert verdict.outcome == "win" and verdict.passed and verdict.e_value >= 60
        assert verdict.gain.mean == pytest.approx(0.3) and verdict.reasons == []
        assert screen(rows(self.parent[:10] + 0.3), rows(self.parent[:10]), GATES).outcome is None

    def test_no_gain_is_futile(self):
        gates = Gates(PROGRESS, effect=0.3, cap=200)
        verdict = screen(rows(self.parent), rows(self.parent), gates)
        assert verdict.outcome == "futile" and "a gain of 0.3 is disproved" in verdict.reasons[0]

    def test_grass_is_harm_however_large_the_gain(self):
        verdict = screen(rows(self.parent + 0.3, 0.5), rows(self.parent), GATES)
        assert verdict.outcome == "harm" and not verdict.passed
        assert any("beyond its margin" in reason for reason in verdict.reasons)
        assert any("beyond its ceiling" in reason for reason in verdict.reasons)

    def test_a_ceiling_holds_also_where_the_parent_is_as_bad(self):
        verdict = screen(rows(self.parent + 0.3, 0.6), rows(self.parent, 0.6), GATES)
        assert verdict.outcome == "harm"
        assert verdict.reasons == [verdict.reasons[0]] and "ceiling" in verdict.reasons[0]

    def test_a_gain_without_proof_that_guards_hold_is_no_win(self):
        few = 20
        verdict = screen(rows(self.parent[:few] + 0.9), rows(self.parent[:few] - 0.9), GATES)
        assert verdict.e_value > 60 and verdict.outcome is None
        capped = screen(rows(self.parent[:few] + 0.9), rows(self.parent[:few] - 0.9),
                        Gates(PROGRESS, guards=GATES.guards, cap=few))  # fmt: skip
        assert capped.outcome == "cap" and capped.reasons == ["no proof that off holds"]

    def test_where_smaller_is_better(self):
        gates = Gates(Measure("lap", -1, 40.0), cap=100)
        candidate = {str(i): {"lap": 20.0} for i in range(100)}
        parent = {str(i): {"lap": 35.0} for i in range(100)}
        assert screen(candidate, parent, gates).outcome == "win"
        assert screen(parent, candidate, gates).outcome == "futile"

    def test_a_measure_without_bounds_counts_up_to_its_width(self):
        gain = self.rng.normal(0.3, 0.5, 200)
        gain[0] = -40.0  # one clip that went wrong
        free = Gates(Measure("progress", 1, 2.0), effect=0.05, cap=200)
        with pytest.raises(ValueError, match="beyond the stated range"):
            screen(rows(self.parent + gain), rows(self.parent), free)
        cut = Gates(Measure("progress", 1, 2.0, cut=True), effect=0.05, cap=200)
        verdict = screen(rows(self.parent + gain), rows(self.parent), cut)
        assert verdict.outcome == "win"
        assert verdict.gain.mean == pytest.approx(np.clip(gain, -2, 2).mean())
        with pytest.raises(ValueError, match="would hold always"):
            Guard(Measure("off", -1, 0.1, cut=True), 0.1, 0.3)

    def test_identical_checkpoints_almost_never_win(self):
        wins, rng = 0, np.random.default_rng(1)
        gates = Gates(PROGRESS, effect=0.05, cap=100)
        for _ in range(300):
            a, b = rng.normal(0.5, 0.2, (2, 100)).clip(0, 1)
            wins += screen(rows(a), rows(b), gates).passed
        assert wins <= 10  # 1 in 60 is promised


class TestConfiguration:
    def pairs(self, gains, off=0.0):
        return [rows([0.5 + g] * 4, off) for g in gains], [rows([0.5] * 4) for _ in gains]

    def test_all_seeds_won_is_a_win(self):
        verdict = seeds(*self.pairs([0.1, 0.2, 0.1, 0.3, 0.1]), 5, 0.04, GATES)
        assert verdict.outcome == "win" and verdict.p == 1 / 32 and verdict.passed
        assert verdict.gain.mean == pytest.approx(0.16) and verdict.gain.n == 5

    def test_one_lost_seed_is_hopeless_at_once_where_none_is_spare(self):
        verdict = seeds(*self.pairs([0.1, -0.01]), 5, 0.04, GATES)
        assert verdict.outcome == "hopeless" and "could not get below" in verdict.reasons[0]
        verdict = seeds(*self.pairs([0.1, -0.01]), 8, 0.04, GATES)
        assert verdict.outcome is None  # the loss is small, and there are spare ones

    def test_a_lost_seed_at_the_end(self):
        verdict = seeds(*self.pairs([0.1, 0.1, 0.1, 0.1, -0.3]), 5, 0.5, GATES)
        assert verdict.outcome == "win"
        verdict = seeds(*self.pairs([0.1, 0.1, 0.1, 0.1, -0.5]), 5, 0.3, GATES)
        assert verdict.outcome == "loss" and verdict.reasons[0].startswith("p = ")

    def test_guards_have_to_be_proved(self):
        verdict = seeds(*self.pairs([0.1] * 5, off=0.2), 5, 0.04, GATES)
        assert verdict.outcome == "loss"
        assert verdict.reasons == ["off may be worse by more than 0.1"]
        verdict = seeds(*self.pairs([0.1] * 5, off=0.35), 5, 0.04, GATES)
        assert "off may be beyond 0.3" in verdict.reasons

    def test_identical_configurations_are_promoted_as_rarely_as_promised(self):
        rng, wins = np.random.default_rng(2), 0
        gates = Gates(PROGRESS)
        for _ in range(2000):
            candidate = [rows([x]) for x in rng.normal(0, 0.1, 6)]
            parent = [rows([x]) for x in rng.normal(0, 0.1, 6)]
            wins += seeds(candidate, parent, 6, 1 / 64, gates).passed
        assert wins / 2000 < 0.03  # 1 in 64


class TestMechanism:
    def test_what_was_predicted_came(self):
        verdict = mechanism("speed", 1, [41, 42, 43, 42.5], [40, 41, 42, 41], "training seeds")
        assert verdict.verdict == "confirmed" and verdict.by == "training seeds"
        verdict = mechanism("speed", -1, [41, 42, 43, 42.5], [40, 41, 42, 41], "training seeds")
        assert verdict.verdict == "refuted"

    def test_too_little_or_too_uncertain_is_inconclusive(self):
        assert mechanism("speed", 1, [1], [0], "seeds").verdict == "inconclusive"
        assert mechanism("lap", 1, [None, 3, None], [2, 1, None], "").verdict == "inconclusive"
        assert mechanism("speed", 1, [1, -1, 1], [0, 0, 0], "").verdict == "inconclusive"


def test_the_earlier_records_promotions_are_rejected_with_reasons():
    gates = Gates(PROGRESS, guards=(Guard(Measure("off_track_rate", -1), 0.05, 0.2),))
    run_008, g003_c03 = (objections_to(claim, gates) for claim in CLAIMS)
    for reasons in (run_008, g003_c03):
        assert {reason.partition(":")[0] for reason in reasons} >= {"G0", "G3", "G4"}
    assert any("needs 6 paired" in reason for reason in run_008)
    assert any("needs 9 paired" in reason for reason in g003_c03)
    assert any("mean between -862 and 1328" in reason for reason in g003_c03)
    assert any(reason.startswith("guard: off the road for 0.268") for reason in g003_c03)
    assert any("mean_brake stayed" in reason for reason in g003_c03)
