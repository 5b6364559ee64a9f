"""The line of numbers that a person sees while PPO trains."""

from collections.abc import Mapping
from typing import Any


def summary(row: Mapping[str, Any], time_left: str = "") -> str:
    """One line of the numbers that tell how training goes."""
    parts = [
        f"{row['ticks_per_second']:,.0f} ticks/s",
        f"{row['decisions_per_second']:,.0f} decisions/s",
        time_left,
    ]
    for label, key, form in (
        ("return", "episode/native_return", ".1f"),
        ("progress", "episode/progress", ".3f"),
        ("off-track", "episode/off_track_rate", ".3f"),
        ("entropy", "ppo/entropy", ".2f"),
    ):
        value = row.get(key)
        parts.append("" if value is None else f"{label} {value:{form}}")
    return "  ".join(filter(None, parts))
