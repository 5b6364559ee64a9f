"""The locked evaluator: fixed rules, native numbers, honest intervals."""

from pathlib import Path

import numpy as np
import pytest
import torch

from common.errors import UserError
from envs.racing.drivers import CentrelineDriver, make_scenario
from envs.racing.evaluate import EVALUATOR_HASH, Evaluation, evaluate
from ppo import load_policy
from tests.policies import Constant, Counting

ROOT = Path(__file__).resolve().parents[4]
SEEN = {"size": 64, "grey": True, "frame_stack": 2, "action_repeat": 4}


def straight(gas=0.3):
    return Constant(gas=gas, **SEEN)


def test_rows_are_by_track_and_summaries_by_rows():
    policy = straight()
    result = evaluate(policy, [3, 7, 11], max_ticks=100)
    assert [row["seed"] for row in result.rows] == [3, 7, 11]
    assert all(row["ticks"] == 100 and row["decisions"] == 25 for row in result.rows)
    assert policy.decisions == 75 and result.actions.shape == (75, 3)
    assert (result.actions == np.float32([0.0, 0.3, 0.0])).all()
    progress = [row["progress"] for row in result.rows]
    assert result.summary["progress"]["mean"] == pytest.approx(np.mean(progress))
    assert result.summary["progress"]["n"] == 3
    assert "lap_time" not in result.summary  # nobody finished, so there is none to average
    assert result.summary["native_return_min"] == min(r["native_return"] for r in result.rows)
    assert result.to_dict()["evaluator"] == EVALUATOR_HASH and len(EVALUATOR_HASH) == 64


def trained(name):
    return load_policy(ROOT / "experiments" / "checkpoints" / f"{name}.pt")


@pytest.mark.parametrize(
    "make",
    [
        straight,
        lambda: Counting(**SEEN),
        Counting,
        CentrelineDriver,
        lambda: make_scenario("near_edge"),
    ],
)
def test_the_result_depends_on_no_batch_and_no_threads(make):
    alone = [evaluate(make(), [seed], max_ticks=120).rows[0] for seed in (3, 7)]
    together = evaluate(make(), [3, 7], max_ticks=120, threads=2).rows
    assert alone == together


@pytest.mark.parametrize(
    ("name", "deterministic"), [("race", True), ("race", False), ("carracing", True)]
)
def test_a_trained_drivers_rows_are_those_of_any_company_and_any_threads(name, deterministic):
    """To the last digit: in a batch of 11, in threes, alone; on one thread of torch or on two."""
    driver, seeds, threads = trained(name), list(range(11)), torch.get_num_threads()
    options = {"max_ticks": 120, "deterministic": deterministic}
    try:
        torch.set_num_threads(2)
        together = evaluate(driver, seeds, **options)
        torch.set_num_threads(1)
        threes = [evaluate(driver, [9, seed, 4], **options).rows[1] for seed in (0, 10)]
        alone = evaluate(driver, [7], **options).rows
    finally:
        torch.set_num_threads(threads)
    assert threes == [together.rows[0], together.rows[10]] and alone == together.rows[7:8]
    assert min(row["progress"] for row in together.rows) > 0.01


def test_a_sampled_evaluation_draws_by_track_and_decision():
    driver, options = trained("race"), {"max_ticks": 60, "deterministic": False}
    one, again = (evaluate(driver, [3, 8], **options) for _ in range(2))
    mean = evaluate(driver, [3, 8], max_ticks=60)
    assert one.rows == again.rows and np.array_equal(one.actions, again.actions)
    assert not np.array_equal(one.actions, mean.actions)
    first = one.actions[:2]  # at a standing start the pictures are nearly the same
    assert np.abs(first[0] - first[1]).max() > 0.01


class Leaving(Counting):
    """Steers the more, the larger the track seed."""

    def initial(self, n, seeds=None):
        return super().initial(n, seeds) | {"steer": np.array(seeds) / 100}

    def act(self, carry, observation, is_first, deterministic=True):
        action, count = super().act(carry, observation, is_first)
        action[:, 0] = carry["steer"]
        return action, carry | count


def test_a_memory_goes_on_through_a_drive_in_a_slot_of_its_own():
    """One car leaves the playfield early; the others' counts are not disturbed by it."""
    policy = Leaving(**SEEN)
    result = evaluate(policy, [0, 3, 5], env="carracing")
    assert policy.seeds == [0, 3, 5]
    decisions = [row["decisions"] for row in result.rows]
    assert len(set(decisions)) > 1
    expected = sorted(n for count in decisions for n in range(1, count + 1))
    counts = np.minimum(expected, 100)
    assert np.array_equal(np.sort(np.round(100 * result.actions[:, 1])), counts)


def test_progress_is_of_ticks_and_ends_full():
    calls = []
    evaluate(straight(), [3, 7], max_ticks=42, progress=lambda *call: calls.append(call))
    assert calls == [(min(8 * n, 84), 84) for n in range(1, 12)]


def test_telemetry_is_read_in_our_worlds_alone():
    row = evaluate(CentrelineDriver(), [5], max_ticks=200).rows[0]
    assert row["progress"] > 0.05 and not row["left_track"]
    with pytest.raises(UserError, match="reads telemetry"):
        evaluate(CentrelineDriver(), [5], env="gymnasium_carracing")


def test_a_race_goes_on_off_the_track_and_beyond_the_playfield():
    race = evaluate(straight(), [0]).rows[0]
    assert race["ticks"] == 1000 and race["left_track"] and race["off_track_rate"] > 0.5
    game = evaluate(straight(), [0], env="carracing").rows[0]
    assert game["ticks"] < 1000 and game["native_return"] < race["native_return"]


def test_both_directions_are_judged():
    ways = [evaluate(straight(), [5], max_ticks=60, direction=way).rows[0] for way in ("ccw", "cw")]
    assert all(row["progress"] > 0 for row in ways) and ways[0] != ways[1]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (([],), "at least one"),
        (([1.7],), "whole number"),
        (([500],), "sealed"),
        (([0], "gym"), "env is one of"),
        (([0], "carracing", "cw"), "direction"),
        (([0], "race", "up"), "direction"),
    ],
)
def test_bad_requests_are_refused(arguments, complaint):
    seeds, *rest = arguments
    options = dict(zip(("env", "direction"), rest, strict=False))
    with pytest.raises(UserError, match=complaint):
        evaluate(straight(), seeds, **options)


def test_sealed_tracks_open_only_on_request():
    assert evaluate(straight(), [500], max_ticks=4, sealed=True).rows[0]["seed"] == 500


def test_intervals_are_those_of_the_rows():
    row = {"seed": 0, "native_return": 1.0, "progress": 1.0, "finished": True, "lap_time": 18.0}
    row |= {"off_track_rate": 0.0, "left_track": False, "mean_speed": 50.0, "ticks": 900}
    row |= {"steering_variance": 0.1, "decisions": 225}
    rows = [row, row | {"native_return": 3.0, "finished": False, "lap_time": None}]
    summary = Evaluation(rows, {}).summary
    assert summary["native_return"]["mean"] == 2.0
    assert summary["native_return"]["values"] == [1.0, 3.0]  # two values have no interval
    assert summary["lap_time"] == {"mean": 18.0, "low": None, "high": None, "n": 1}
    assert summary["finished"]["mean"] == 0.5 and 0 < summary["finished"]["low"] < 0.5
    three = Evaluation([*rows, row | {"progress": 0.4, "off_track_rate": 0.3}], {}).summary
    assert 0.8 < three["progress"]["high"] <= 1 and 0 <= three["off_track_rate"]["low"] < 0.1
    assert three["native_return"]["high"] == pytest.approx(5 / 3 + 2.8684, abs=1e-3)  # t(2)
