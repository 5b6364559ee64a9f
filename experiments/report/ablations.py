"""What each choice of the trainer is worth: the ablations in REPORT.md and docs/ppo.md."""

from collections.abc import Mapping
from typing import Any

from common.markdown import estimate, number, provenance, table

ABLATION_COLUMNS = (
    ("progress", "progress"),
    ("native_return", "native return"),
    ("off_track_rate", "off-track rate"),
)


def ablations_section(record: Mapping[str, Any]) -> str:
    return "\n\n".join(
        [
            "## Ablations",
            provenance(record),
            ablations(record),
            "![ablations](experiments/records/ablations.png)",
        ]
    )


def ablations(record: Mapping[str, Any]) -> str:
    """A row per variant: the mean over seeds, and the difference to the base, paired by seed."""
    settings, variants = record["settings"], record["details"]["variants"]
    rows = []
    for variant in variants.values():
        found, seeds = variant["estimates"], variant["seeds"]
        cells = [
            estimate(found.get(key))
            for name, _ in ABLATION_COLUMNS
            for key in (name, f"{name}_difference")
        ]
        effort = [
            number(sum(row[name] for row in seeds) / len(seeds))
            for name in ("decisions", "seconds")
        ]
        rows.append([variant["title"], *cells, *effort])
    pairs = [part for _, title in ABLATION_COLUMNS for part in (title, "less base's")]
    return "\n\n".join(
        [
            f"{settings['total_timesteps']:,} engine ticks each, training seeds "
            f"{settings['seeds']}, {len(settings['tracks'])} test tracks, the last policy of each "
            "run; means with 95% intervals over seeds, differences paired by seed.",
            table(["variant", *pairs, "decisions", "seconds"], rows),
        ]
    )
