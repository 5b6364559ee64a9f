"""The locked evaluator: fixed rules, native numbers, honest intervals."""

import numpy as np
import pytest

from common.errors import UserError
from envs.racing import ObservationSpec
from envs.racing.evaluate import EVALUATOR_HASH, Evaluation, evaluate


class Straight:
    """Gas and nothing else; counts how often it is asked."""

    spec = ObservationSpec(size=64, grey=True, frame_stack=2, action_repeat=4)

    def __init__(self, gas=0.3):
        self.gas, self.asked = gas, 0

    def act(self, observation, deterministic=True):
        assert observation.shape[1:] == self.spec.shape and observation.dtype == np.uint8
        self.asked += len(observation)
        return np.tile(np.float32([0.0, self.gas, 0.0]), (len(observation), 1))


def test_rows_are_by_track_and_summaries_by_rows():
    policy = Straight()
    result = evaluate(policy, [3, 7, 11], max_ticks=100)
    assert [row["seed"] for row in result.rows] == [3, 7, 11]
    assert all(row["ticks"] == 100 and row["decisions"] == 25 for row in result.rows)
    assert policy.asked == 75
    progress = [row["progress"] for row in result.rows]
    assert result.summary["progress"]["mean"] == pytest.approx(np.mean(progress))
    assert result.summary["progress"]["n"] == 3
    assert "lap_time" not in result.summary  # nobody finished, so there is none to average
    assert result.summary["native_return_min"] == min(r["native_return"] for r in result.rows)
    assert result.to_dict()["evaluator"] == EVALUATOR_HASH and len(EVALUATOR_HASH) == 64


def test_the_result_depends_on_no_batch_and_no_threads():
    alone = [evaluate(Straight(), [seed], max_ticks=120).rows[0] for seed in (3, 7)]
    together = evaluate(Straight(), [3, 7], max_ticks=120, threads=2).rows
    assert alone == together


def test_a_race_goes_on_off_the_track_and_beyond_the_playfield():
    race = evaluate(Straight(), [0]).rows[0]
    assert race["ticks"] == 1000 and race["left_track"] and race["off_track_rate"] > 0.5
    game = evaluate(Straight(), [0], env="carracing").rows[0]
    assert game["ticks"] < 1000 and game["native_return"] < race["native_return"]


def test_both_directions_are_judged():
    ways = [evaluate(Straight(), [5], max_ticks=60, direction=way).rows[0] for way in ("ccw", "cw")]
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
        evaluate(Straight(), seeds, **options)


def test_sealed_tracks_open_only_on_request():
    assert evaluate(Straight(), [500], max_ticks=4, sealed=True).rows[0]["seed"] == 500


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
