"""Records keep what their readers rely on."""

import json
import math

import pytest

from common.errors import UserError
from common.records import read_record, write_record


def test_a_record_holds_the_contract(tmp_path):
    estimate = {"mean": 1.0, "low": 0.5, "high": 1.5, "n": 3}
    path = write_record(
        "drive",
        command="python train_ppo.py",
        settings={"seed": 1},
        metrics={"progress": estimate, "lap_time": math.nan},
        artifacts=["drive.png"],
        directory=tmp_path,
    )
    record = json.loads(path.read_text())
    assert set(record) == {
        "name", "command", "created", "code", "machine", "settings", "metrics", "artifacts",
    }  # fmt: skip
    assert record["metrics"] == {"progress": estimate, "lap_time": None}
    assert len(record["code"]["sha256"]) == 64
    assert read_record("drive", tmp_path) == record


def test_a_record_that_nobody_made_is_none(tmp_path):
    assert read_record("drive", tmp_path) is None


@pytest.mark.parametrize("name", ["", "../drive", "Drive", "a/b", "x" * 81])
def test_names_are_file_names(tmp_path, name):
    with pytest.raises(UserError, match="a record's name"):
        write_record(name, command="", settings={}, metrics={}, directory=tmp_path)
    assert not list(tmp_path.iterdir())
