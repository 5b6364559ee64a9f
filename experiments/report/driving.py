"""The trained drivers in REPORT.md, and training with the earlier record's budget."""

from collections.abc import Mapping
from typing import Any

from common.markdown import estimate, number, provenance, table
from experiments.report.published import EARLIER

DRIVING_COLUMNS = (
    ("progress", "progress"),
    ("native_return", "native return"),
    ("finished", "finished"),
    ("off_track_rate", "off-track rate"),
    ("lap_time", "lap time (s)"),
)
_BUDGET = ("progress", "off_track_rate")


def driving_section(records: list[Mapping[str, Any]]) -> str:
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
            "By the locked evaluator, deterministic policy, with 95% intervals. Where several "
            "seeds were trained, the first row is their mean with its interval over seeds; a "
            "seed's own row has intervals over tracks, and so has the last one, of tracks averaged "
            "over seeds. The earlier record's best, in its own world: run_008, progress "
            f"{EARLIER['progress']}, off-track rate {EARLIER['off_track_rate']} after "
            f"{EARLIER['steps']:,} steps (three episodes).",
            table(header, rows),
            *(f"- {record['name']}: {provenance(record)}{_best(record)}" for record in records),
            *pictures,
        ]
    )


def budget_section(records: list[Mapping[str, Any]]) -> str:
    """Training with no more experience than the earlier record's best had."""
    steps = EARLIER["steps"]
    rows = [
        [f"earlier record, run_008 ({steps:,} steps)", "", *(number(EARLIER[m]) for m in _BUDGET)]
    ]
    for record in records:
        metrics = record["metrics"]
        cells = [estimate(metrics.get(name)) for name in _BUDGET]
        rows.append([_title(record), f"{metrics['ticks']:,} / {metrics['decisions']:,}", *cells])
    return "\n\n".join(
        [
            "## With the earlier record's budget",
            f"The earlier record's best had {steps:,} steps of a two-car world with another "
            "reward, and three episodes to be judged by. A step of its may be compared with a "
            "decision of ours (an action held for several engine ticks) or, more strictly, with a "
            "tick.",
            table(["run", "ticks / decisions", "progress", "off-track rate"], rows),
            *(f"- {record['name']}: {provenance(record)}" for record in records),
        ]
    )


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
