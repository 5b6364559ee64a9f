"""Overrides: the settings in which one configuration differs from another, by dotted key."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from typing import Any

DIGITS = 4
"""Significant digits of proposed numbers: a finer difference is the same idea."""


def rounded(change: Mapping[str, Any]) -> dict[str, Any]:
    """`change` with its numbers to DIGITS significant digits."""
    return {key: _rounded(value) for key, value in change.items()}


def _rounded(value: Any) -> Any:
    if isinstance(value, float) and math.isfinite(value):
        return float(f"{value:.{DIGITS}g}")
    return value


def combined(
    parent: Mapping[str, Any], change: Mapping[str, Any], base: Mapping[str, Any]
) -> dict[str, Any]:
    """The overrides of a candidate against the campaign's base: canonical, sorted by key.

    Args:
        parent: the parent's overrides; change: the proposal's; base: the base's whole
            configuration, with dotted keys. What comes back to the base's value is no override.
    """
    whole = {**parent, **change}
    return {
        key: whole[key]
        for key in sorted(whole)
        if key not in base or not _same(whole[key], base[key])
    }


def digest(overrides: Mapping[str, Any]) -> str:
    """A short name of overrides in canonical form: equal ones have equal digests."""
    plain = {key: _number(value) for key, value in overrides.items()}
    text = json.dumps(plain, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def strays(
    base: Mapping[str, Any], config: Mapping[str, Any], overrides: Mapping[str, Any]
) -> list[str]:
    """Where a run's configuration is not what was proposed, as messages.

    Args:
        base: the whole configuration that the base's run wrote, dotted key to value.
        config: the one that the candidate's run wrote.
        overrides: of the candidate against the base.
    """
    messages = []
    for key in sorted(base.keys() | config.keys()):
        before, after = base.get(key), config.get(key)
        if key in overrides:
            if not _same(after, overrides[key]):
                messages.append(f"{key} is {after}, not the proposed {overrides[key]}")
        elif not _same(before, after):
            messages.append(f"{key} is {after} instead of {before}, which nobody proposed")
    return messages


def as_arguments(overrides: Mapping[str, Any]) -> list[str]:
    """`key=value` for a Hydra command line."""
    return [f"{key}={_argument(value)}" for key, value in overrides.items()]


def _same(a: Any, b: Any) -> bool:
    return _number(a) == _number(b)


def _number(value: Any) -> Any:
    """8 and 8.0 are one value, True and 1 are not."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    return float(value)


def _argument(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return "'" + value.replace("'", "\\'") + "'"
    return repr(value)
