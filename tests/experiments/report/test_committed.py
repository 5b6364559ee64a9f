"""What is committed: documents are what records give, and no record says the impossible."""

from collections.abc import Iterator
from typing import Any

import pytest

from autoresearch.judge.earlier import CLAIMS
from common.records import RECORDS, read_record
from common.runs import ROOT
from envs.racing.evaluate import RANGES
from experiments.report.published import EARLIER_RUNS
from experiments.rungs.keeping import measure_range
from probes.metrics import RANGES as PICTURES
from scripts.report import documents

OTHERS = {
    "corr": (-1, 1), "mae": (0, None), "action_sensitivity": (0, None), "promoted": (0, 1),
    "screened": (0, 1), "best_of_three": (0, 1),
}  # fmt: skip


@pytest.fixture(scope="module")
def records():
    return [read_record(path.stem) for path in sorted(RECORDS.glob("*.json"))]


def estimates(data: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], dict]]:
    """Every estimate in a record, with the keys that lead to it."""
    if isinstance(data, dict):
        if data.keys() >= {"mean", "low", "high", "n"}:
            yield path, data
        else:
            for key, value in data.items():
                yield from estimates(value, (*path, key))
    elif isinstance(data, list):
        for value in data:
            yield from estimates(value, path)


def test_documents_are_what_the_records_give():
    stale = [path for path, text in documents().items() if path.read_text("utf-8") != text]
    assert stale == [], "run python scripts/report.py"


def ends(path: tuple[str, ...]) -> tuple[float | None, float | None]:
    """The range of the quantity that the keys of an estimate name."""
    known = RANGES | PICTURES | OTHERS
    names = [part.rpartition("/")[2] for part in reversed(path)]
    for name in names:
        if name in known:
            return known[name]
    return measure_range(names[0])


def test_no_interval_leaves_its_range_and_none_is_of_two_values(records):
    checked = 0
    for record in records:
        for path, one in estimates(record):
            where = f"{record['name']}: {'.'.join(path)}"
            low, high = ends(path)
            if one["low"] is not None:
                assert one["n"] > 2, where
                assert low is None or one["low"] >= low, where
                assert high is None or one["high"] <= high, where
                checked += low is not None or high is not None
            elif one["n"] == 2:
                assert len(one["values"]) == 2, where
    assert checked > 300


def test_the_report_and_the_gates_know_the_same_earlier_promotions():
    ours = {run.name: (run.off_track_rate, run.episodes) for run in EARLIER_RUNS}
    assert ours == {claim.name: (claim.off_track_rate, claim.episodes) for claim in CLAIMS}
    for run, claim in zip(EARLIER_RUNS, CLAIMS, strict=True):
        assert f"reward {run.reward:g}" in claim.about


def test_uncommitted_code_is_marked(records):
    text = (ROOT / "REPORT.md").read_text("utf-8")
    for record in records:
        if f"`{record['command']}`, {record['created'][:10]}, code" in text:
            commit = record["code"]["commit"][:10]
            mark = "†" if record["code"]["clean"] is False else ""
            line = f"`{record['command']}`, {record['created'][:10]}, code {commit}{mark}, "
            assert line in text, record["name"]
