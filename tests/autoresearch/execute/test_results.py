"""What a command leaves is read whole, or refused with the reason."""

import json

import pytest

from autoresearch.execute.results import Unusable, read_result
from autoresearch.types.task import JudgeTask, TrainTask
from tests.autoresearch import toys


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"progress": float("nan")}, "progress of unit 7 is nan, not a finite number"),
        ({"progress": float("inf")}, "progress of unit 7 is inf, not a finite number"),
        ({"progress": 10**400}, "int too large"),
        ({"progress": "0.5"}, "progress of unit 7 is '0.5', not a finite number"),
        ({"speed": "fast"}, "speed of unit 7 is 'fast', not a number"),
        ({"seed": 8}, "unit 8 twice"),
    ],
)
def test_a_judge_that_leaves_no_numbers_is_unusable(tmp_path, change, message):
    rows = [{"seed": n, "progress": 0.5, "off_track_rate": 0, "speed": 40} for n in (7, 8)]
    rows[0] |= change
    (tmp_path / "eval.json").write_text(json.dumps({"rows": rows, "evaluator": "toy"}))
    task = JudgeTask(TrainTask("base", {}, 1, 100), first=7, count=2)
    with pytest.raises(Unusable, match=message):
        read_result(task, tmp_path, toys.config(tmp_path))
