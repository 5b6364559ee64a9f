"""The ablation study in REPORT.md and docs/ppo.md: what each design choice of PPO is worth."""

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
    """A table with a row per variant: means over seeds and differences from the base."""
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
            f"Each run has {settings['total_timesteps']:,} engine ticks. The training seeds are "
            f"{settings['seeds']}. The last policy of each run was judged on "
            f"{len(settings['tracks'])} test tracks. The table shows means over seeds with 95% "
            "intervals, and differences from the base, paired by seed.",
            table(["variant", *pairs, "decisions", "seconds"], rows),
        ]
    )
