"""Writes the figures in README.md, and puts generated text into hand-written documents."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from common.errors import UserError
from common.markdown import cores, estimate, number
from common.records import RECORDS, read_record
from experiments.report.driving import over_many_seeds
from experiments.report.kept import BUDGET_SEEDS, BUDGETS, REAL, trained
from experiments.report.published import EARLIER_RUNS


def facts(records: Path = RECORDS) -> str:
    """The list of results in the README."""
    lines = []
    if speed := read_record("speed", records):
        m = speed["metrics"]
        lines.append(
            f"- **{number(m['ratio_per_core'])} times** CarRacing-v3 on one core, pixels included: "
            f"{number(m['ours'])} frames/s against {number(m['reference'])} on one "
            f"{speed['machine']['cpu']} (`python scripts/bench_env.py`). Other CPUs: see "
            "[docs/speed.md](docs/speed.md)."
        )
    if parity := read_record("parity", records):
        m = parity["metrics"]
        mild, violent = (m[f"dynamics_{kind}_road_100_median"] for kind in ("mild", "violent"))
        lines.append(
            f"- After 100 steps of mild driving the car is {number(mild)} units from Box2D's "
            f"(median; violent driving {number(violent)}), and frames of the same state differ by "
            f"{number(m['pixels_picture_mean'])} of 255 (`python scripts/parity.py`)."
        )
    for record in trained(records):
        m, settings = record["metrics"], record["settings"]
        seeds, tracks = len(record["details"].get("seeds", ())), len(settings["seeds"])
        if settings["env"] == REAL:
            drove = (
                f"return {estimate(m['native_return'])} (10th percentile "
                f"{number(m['native_return_p10'])}) on {tracks} tracks of the real CarRacing-v3"
            )
        else:
            drove = (
                f"progress {estimate(m['progress'])}, off-track rate "
                f"{estimate(m['off_track_rate'])} on {tracks} tracks"
            )
        several = f", {seeds} seeds" if seeds > 1 else ""
        each = " each" if seeds > 1 else ""
        lines.append(
            f"- `{record['command']}`: {drove}{several}, after {m['seconds'] / 60:.1f} minutes of "
            f"training{each} on {cores(record)} ({record['machine']['cpu']})."
        )
    few, many = read_record(BUDGETS[0], records), read_record(BUDGET_SEEDS, records)
    if few and many:
        lines.append(_budget(few, many))
    return "\n".join(lines)


def _budget(few: Mapping[str, Any], many: Mapping[str, Any]) -> str:
    """A line on learning from as few steps as the earlier record, from the two records on it."""
    chosen, last = few["metrics"], many["metrics"]
    earlier = ", ".join(
        f"{run.progress} ({run.name}, off-track rate {run.off_track_rate})" for run in EARLIER_RUNS
    )
    return (
        f"- `{few['command']}`, which has {chosen['decisions']:,} decisions: progress "
        f"{estimate(over_many_seeds(many))} over {last['runs']} training seeds with their last "
        f"weights, which is what to expect of one more run; {estimate(chosen['progress'])} over "
        f"{chosen['progress']['n']} seeds with the snapshot that is best on validation tracks. An "
        "earlier project reported, in a world of its own and on three episodes each: "
        f"{earlier}."
    )


def filled(text: str, name: str, content: str, where: str) -> str:
    """`text` with `content` between its two marks for `name`.

    Raises `UserError` unless each of the two marks occurs exactly once.
    """
    begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
    head, _, tail = text.partition(begin)
    if text.count(begin) != 1 or text.count(end) != 1 or end not in tail:
        raise UserError(f"{where} needs one {begin} and, after it, one {end}")
    return f"{head}{begin}\n{content}\n{end}{tail.partition(end)[2]}"
