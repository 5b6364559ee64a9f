"""The sections of REPORT.md on trained drivers and on training with the earlier record's budget."""

from collections.abc import Mapping
from typing import Any

from common.markdown import estimate, number, provenance, table
from common.statistics import bounded_interval
from envs.racing.evaluate import RANGES
from experiments.report.published import EARLIER_RUNS, EarlierRun

DRIVING_COLUMNS = (
    ("progress", "progress"),
    ("native_return", "native return"),
    ("finished", "finished"),
    ("off_track_rate", "off-track rate"),
    ("lap_time", "lap time (s)"),
)
BUDGET_COLUMNS = ("progress", "off_track_rate")


def driving_section(records: list[Mapping[str, Any]]) -> str:
    """The section on driving: a row for every trained driver and for each of its seeds."""
    rows = []
    for record in records:
        rows.append([_title(record), *_measures(record["metrics"])])
        seeds = record["details"].get("seeds", [])
        if len(seeds) > 1:
            rows += [
                [f"{record['name']}, seed {row['seed']}", *_measures(row["metrics"] | _effort(row))]
                for row in seeds
            ]
            over_tracks = _estimates(record["details"]["over_tracks"])
            rows.append([f"{record['name']}, over tracks", "", "", *over_tracks])
    header = ["run", "ticks / decisions", "seconds", *(title for _, title in DRIVING_COLUMNS)]
    pictures = [f"![{r['name']}](experiments/records/{r['name']}.png)" for r in records]
    return "\n\n".join(
        [
            "## Driving",
            "The locked evaluator measured these results with the deterministic policy; brackets "
            "are 95% intervals. If several seeds were trained, the first row is their mean, with "
            "its interval over seeds. The row of a single seed has intervals over tracks. So has "
            "the last row, where each track is averaged over seeds. The earlier record's best "
            f"results, in its own world: {_earlier()}.",
            table(header, rows),
            *(f"- {record['name']}: {provenance(record)}{_best(record)}" for record in records),
            *pictures,
        ]
    )


def budget_section(
    records: list[Mapping[str, Any]], calibration: Mapping[str, Any] | None = None
) -> str:
    """The section on training with as little experience as the earlier record's run_008 had.

    `calibration`, if given, is the record of many training seeds of the same configuration.
    """
    rows = [_earlier_row(run) for run in EARLIER_RUNS]
    for record in records:
        metrics = record["metrics"]
        cells = [estimate(metrics.get(name)) for name in BUDGET_COLUMNS]
        rows.append([_title(record), f"{metrics['ticks']:,} / {metrics['decisions']:,}", *cells])
    parts = [
        "## With the earlier record's budget",
        f"The earlier record's run_008 was trained for {EARLIER_RUNS[0].steps:,} steps. The number "
        "of steps of its g003_c03 is not known. One of those steps can be compared with one of our "
        "decisions (an action that is held for several engine ticks) or, more strictly, with one "
        "tick. Both comparisons are shown.",
    ]
    if calibration:
        rows.insert(len(EARLIER_RUNS), _calibration_row(calibration))
    parts.append(table(["run", "ticks / decisions", "progress", "off-track rate"], rows))
    if calibration and records:
        parts.append(_which_to_believe(records[0], calibration))
    parts += [f"- {record['name']}: {provenance(record)}" for record in records]
    if calibration:
        parts.append(f"- {calibration['name']}: {provenance(calibration)}")
    return "\n\n".join(parts)


def over_many_seeds(calibration: Mapping[str, Any]) -> dict[str, Any]:
    """The mean over a calibration's training seeds, with its interval over seeds."""
    ends = RANGES[calibration["settings"]["primary"]]
    return bounded_interval(calibration["details"]["means"], *ends).to_dict()


def _which_to_believe(record: Mapping[str, Any], calibration: Mapping[str, Any]) -> str:
    few, many = record["metrics"]["progress"], over_many_seeds(calibration)
    return (
        f"Two rows have the same configuration. {number(few['mean'])} is the mean of {few['n']} "
        "seeds; for each, the snapshot that was best on validation tracks was judged. "
        f"{number(many['mean'])} is the mean of {many['n']} other seeds; for each, the last "
        "weights were judged. Use the second number to predict one more training run: it has more "
        "seeds, and nothing was selected. The difference between the two comes from selecting a "
        f"snapshot and from chance: {few['n']} seeds can differ that much from {many['n']}."
    )


def _calibration_row(calibration: Mapping[str, Any]) -> list[str]:
    metrics, settings = calibration["metrics"], calibration["settings"]
    title = (
        f"{calibration['name']} (race, {metrics['units']} tracks, {metrics['runs']} seeds, last "
        "weights)"
    )
    return [title, f"{settings['budget']:,}", estimate(over_many_seeds(calibration)), ""]


def _earlier() -> str:
    runs = [
        f"{run.name} with progress {run.progress} and off-track rate {run.off_track_rate}"
        for run in EARLIER_RUNS
    ]
    return f"{' and '.join(runs)}, {EARLIER_RUNS[0].episodes} episodes each"


def _earlier_row(run: EarlierRun) -> list[str]:
    steps = f"{run.steps:,} steps" if run.steps else ""
    title = f"earlier record, {run.name} ({run.episodes} episodes)"
    return [title, steps, number(run.progress), number(run.off_track_rate)]


def _title(record: Mapping[str, Any]) -> str:
    seeds = len(record["details"].get("seeds", ()))
    several = f", {seeds} seeds" if seeds > 1 else ""
    settings = record["settings"]
    return f"{record['name']} ({settings['env']}, {len(settings['seeds'])} tracks{several})"


def _measures(metrics: Mapping[str, Any]) -> list[str]:
    effort = f"{metrics['ticks']:,} / {metrics['decisions']:,}"
    return [effort, number(metrics["seconds"]), *_estimates(metrics)]


def _estimates(metrics: Mapping[str, Any]) -> list[str]:
    return [estimate(metrics.get(name)) for name, _ in DRIVING_COLUMNS]


def _effort(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: row[name] for name in ("ticks", "decisions", "seconds")}


def _best(record: Mapping[str, Any]) -> str:
    details = record["details"]
    if len(details.get("seeds", ())) < 2 or "best_seed" not in details:
        return ""
    best = details["best_seed"]
    return f"; best seed {best['seed']} (by {best['by']})"
