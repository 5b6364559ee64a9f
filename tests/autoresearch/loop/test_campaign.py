"""Whole campaigns over a trainer of milliseconds: promotions, failures, refusals, repeats."""

import dataclasses
import json
import time

import pytest

from autoresearch.execute.processes import processes_of
from autoresearch.loop.campaign import Campaign
from autoresearch.loop.ledger import LEDGER, Ledger
from autoresearch.loop.verify import verify
from common.errors import ConfigError, UserError
from tests.autoresearch import toys
from tests.autoresearch.toys import QUICK, ledger_of


def test_what_is_better_is_promoted_and_becomes_the_parent(tmp_path):
    lines = [{"skill": 0.7}, {"skill": 0.7}, {"skill": 0.1}, {"steps": 9}]
    proposer = toys.transcript(tmp_path / "t.jsonl", *lines) | {"candidates": 1}
    config = toys.config(tmp_path, gates=QUICK, proposer=proposer, budgets={"generations": 3})
    reason, state = toys.run(config)
    assert reason == "all generations are done"
    assert [c.promoted for c in state.candidates.values()] == [True, False, False]
    assert [g.parent for g in state.generations] == ["base", "g001_c01", "g001_c01"]
    first, second, third = state.generations
    assert first.candidates["g001_c01"].judged["G5"].verdict == "confirmed"
    assert second.refused[0]["reasons"] == [
        "it changes nothing: the parent has these values already"
    ]
    assert second.candidates["g002_c01"].judged["G3"].outcome == "futile"
    assert third.candidates["g003_c01"].overrides == {"skill": 0.7, "steps": 9}
    verified = verify(toys.Path(config.root) / config.name)
    assert verified.decisions > 10 and verified.artifacts > 10


def test_failures_are_typed_and_never_a_number(better):
    _, state = toys.run(better)
    crashed, screened = state.candidates["g001_c02"], state.candidates["g001_c03"]
    assert crashed.judged["G1"].failure == "crash"
    assert crashed.judged["G1"].reasons == ["crash: it went wrong"]
    assert screened.judged["G1"].reasons == ["spinning shows, which the parent does not show"]
    assert list(crashed.judged) == ["G1", "G5"]
    assert crashed.judged["G5"].verdict == "inconclusive"


@pytest.mark.parametrize(
    ("change", "commands", "failure", "detail"),
    [
        ({"crash": 2}, {}, "refused", "it went wrong"),
        ({"skill": 0.5}, {"ticks": "updates"}, "unusable", "updates"),
    ],
)
def test_kinds_of_failure(tmp_path, change, commands, failure, detail):
    proposer = toys.transcript(tmp_path / "t.jsonl", change)
    config = toys.config(
        tmp_path, gates=QUICK, proposer=proposer, commands=commands, budgets={"generations": 1}
    )
    reason, state = toys.run(config)
    if failure == "unusable":  # the base itself
        assert reason == "base could not run: unusable: 'updates'"
    else:
        verdict = state.candidates["g001_c01"].judged["G1"]
        assert verdict.failure == failure and detail in verdict.reasons[0]


def test_what_takes_too_long_is_ended_with_all_that_it_started(tmp_path):
    space = {"sleep": {"low": 0, "high": 99}, "child": {"low": 0, "high": 1, "integer": True}}
    proposer = toys.transcript(tmp_path / "t.jsonl", {"sleep": 60.0, "child": 1})
    budgets = {"generations": 1, "timeout": 3.0, "grace": 0.2}
    config = toys.config(tmp_path, gates=QUICK, space=space, proposer=proposer, budgets=budgets)
    began = time.monotonic()
    _, state = toys.run(config)
    assert time.monotonic() - began < 50
    assert state.candidates["g001_c01"].judged["G1"].failure == "timeout"
    run = next(r for r in state.runs.values() if r.last.failure == "timeout")
    assert run.last.seconds >= 3 and processes_of(run.last.token) == []


def test_identical_candidates_do_not_pass(tmp_path):
    lines = [{"note": "b"}, {"note": "c"}]
    config = toys.config(
        tmp_path, proposer=toys.transcript(tmp_path / "t.jsonl", *lines),
        budgets={"generations": 1}, gates={"effect": 0.1},
    )  # fmt: skip
    _, state = toys.run(config)
    assert not any(c.promoted for c in state.candidates.values())


def test_rungs_halve_the_field(tmp_path):
    lines = [{"skill": 0.1}, {"skill": 0.7}, {"skill": 0.6}, {"skill": 0.2}]
    config = toys.config(
        tmp_path, proposer=toys.transcript(tmp_path / "t.jsonl", *lines),
        gates=QUICK | {"halving": [0.3, 0.6], "rung_units": 10, "finalists": 1},
        budgets={"generations": 1},
    )  # fmt: skip
    _, state = toys.run(config)
    passed = {name: [g for g in c.judged if c.passed(g)] for name, c in state.candidates.items()}
    assert passed["g001_c01"] == passed["g001_c04"] == ["G1"]
    assert passed["g001_c03"] == ["G1", "G2.1"]
    assert passed["g001_c02"][:4] == ["G1", "G2.1", "G2.2", "G3"]
    verify(toys.Path(config.root) / config.name)


def test_without_its_proposer_nothing_begins(tmp_path):
    proposer = {"kind": "transcript", "transcript": str(tmp_path / "none.jsonl")}
    with pytest.raises(UserError, match=r"proposer\.transcript=.*none"):
        toys.run(toys.config(tmp_path, proposer=proposer))
    assert not Ledger.reading(tmp_path / "toy" / LEDGER).rows


def test_a_root_that_cannot_be_is_told(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"cannot write .*Not a directory"):
        toys.run(toys.config(tmp_path / "file"))


def test_a_measure_beyond_its_stated_range_ends_a_candidate_and_no_campaign(tmp_path):
    gates = QUICK | {"primary": {"name": "progress", "width": 0.2}}
    config = toys.config(
        tmp_path, gates=gates, budgets={"generations": 1},
        proposer=toys.transcript(tmp_path / "t.jsonl", {"skill": 0.0}, {"skill": 0.45}),
    )  # fmt: skip
    reason, state = toys.run(config)
    assert reason == "all generations are done"
    verdict = state.candidates["g001_c01"].judged["G3"]
    assert verdict.failure == "unusable" and "progress: a difference of -" in verdict.reasons[0]
    verify(tmp_path / "toy")


def test_a_run_that_is_lost_again_and_again_is_given_up(tmp_path):
    space = {"lost": {"low": 0, "high": 1}}
    script = "import os; os.kill(os.getpid(), 9)"
    commands = {"train": ["-c", script, "{name} {seed} {budget}"], "resume": []}
    config = toys.config(tmp_path, commands=commands, space=space, executor={"attempts": 2})
    reason, state = toys.run(config)
    assert reason == "base could not run: lost: signal 9 from outside"
    assert [len(run.attempts) for run in state.runs.values()] == [2]


def test_one_campaign_runs_once_at_a_time(better):
    with Campaign.opened(better, print), pytest.raises(UserError, match="another process"):
        toys.run(better)


def test_a_campaign_is_not_taken_up_with_other_settings_or_code(better, monkeypatch):
    toys.run(better, "propose")
    with pytest.raises(ConfigError, match="was begun with another seed"):
        toys.run(dataclasses.replace(better, seed=7))
    monkeypatch.setattr("autoresearch.loop.campaign.code_state", lambda: {"sha256": "f" * 64})
    with pytest.raises(UserError, match="was begun with other code"):
        toys.run(better)


def test_runs_by_other_code_or_another_ruler_stop_the_campaign(better, monkeypatch):
    toys.run(better, "propose")
    monkeypatch.setenv("TOY_CODE", "e" * 64)
    with pytest.raises(UserError, match="trained by other code than the runs before it"):
        toys.run(better)


def test_the_same_wish_is_one_run(better):
    _, state = toys.run(better)
    assert len({run.key for run in state.runs.values()}) == len(state.runs)
    assert all(len(run.attempts) == 1 for run in state.runs.values())


def test_the_ledger_is_plain_json(better):
    toys.run(better)
    for row in ledger_of(better):
        assert "NaN" not in json.dumps(row.data)


def test_lines_are_in_plain_words(better):
    lines = []
    with Campaign.opened(better, lines.append) as campaign:
        campaign.run()
    assert lines[0].startswith("generation 1: parent base; a promotion costs")
    assert "g001_c01 fresh seeds (G4): better" in lines and "g001_c01 is promoted" in lines
    assert "g001_c02 short run (G1): crash; crash: it went wrong" in lines
