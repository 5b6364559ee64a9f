"""A proposal: a change of a configuration, what it should do, and whether it may be tried."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from autoresearch.config import CampaignConfig
from common.errors import UserError

DIGITS = 4
"""Significant digits of proposed numbers: finer differences are the same idea."""
MAX_TEXT = 2000


@dataclass(frozen=True)
class Proposal:
    """What a proposer says.

    Attributes:
        change: key to value, against the parent's configuration.
        hypothesis: why that should be better.
        observable: a judged measure that the mechanism must move.
        sign: 1 if it should grow, -1 if it should fall.
        source: who proposed it.
        cost: what the proposal itself cost, such as {"tokens": 812}.
        evidence: what tells how it came about, such as hashes of a prompt and a reply.
    """

    change: dict[str, Any]
    hypothesis: str
    observable: str
    sign: int
    source: str = ""
    cost: dict[str, int] = field(default_factory=dict)
    evidence: dict[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, content: Any, source: str) -> Proposal:
        """From what a model, or a transcript, says: plain data of untrusted make.

        Raises `UserError` with what is wrong: the four fields and no others, of the right types.
        """
        if not isinstance(content, Mapping):
            raise UserError("a proposal is a JSON object")
        wanted = ("change", "hypothesis", "observable", "sign")
        absent = [name for name in wanted if name not in content]
        foreign = [ascii(str(name)[:40])[1:-1] for name in content if name not in wanted]
        if absent or foreign:
            told = [f"no {', '.join(absent)}"] if absent else []
            told += [f"unknown {', '.join(foreign)}"] if foreign else []
            raise UserError(f"a proposal has {', '.join(wanted)}; this one: {'; '.join(told)}")
        change, hypothesis = content["change"], content["hypothesis"]
        observable, sign = content["observable"], content["sign"]
        if not isinstance(change, Mapping) or not all(isinstance(key, str) for key in change):
            raise UserError("change is an object of key and value")
        for key, value in change.items():
            if not isinstance(value, str | int | float | bool):
                raise UserError(f"change.{ascii(key[:40])[1:-1]} is no plain value")
        # It is printed: what could move the cursor would forge the lines around it.
        texts = [value for pair in change.items() for value in pair if isinstance(value, str)]
        if not all(text.isprintable() and len(text) <= MAX_TEXT for text in texts):
            raise UserError(f"change is in printable text of at most {MAX_TEXT} characters")
        if (
            not isinstance(hypothesis, str)
            or not 0 < len(hypothesis) <= MAX_TEXT
            or not hypothesis.isprintable()
        ):
            raise UserError(f"hypothesis is one line of text, 1 to {MAX_TEXT} characters")
        if not isinstance(observable, str) or not observable.isprintable():
            raise UserError("observable is the name of a measure")
        if isinstance(sign, bool) or sign not in (1, -1):
            raise UserError("sign is 1 or -1")
        return cls(rounded(change), hypothesis, observable, int(sign), source)


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


def objections(
    proposal: Proposal,
    config: CampaignConfig,
    parent: Mapping[str, Any],
    base: Mapping[str, Any],
    tried: Mapping[str, str],
) -> list[str]:
    """G0: every reason against trying a proposal; empty if there is none.

    Args:
        parent: overrides of the configuration that it changes.
        base: the base's whole configuration, dotted.
        tried: digest of overrides to the candidate that already has them.
    """
    found = []
    if not proposal.change:
        found.append("it changes nothing")
    for key, value in proposal.change.items():
        if key not in config.space:
            found.append(f"{key} may not be searched")
        elif why := config.space[key].accepts(value):
            found.append(f"{key}: {why}")
        elif key not in base:
            found.append(f"{key} is no setting of the base configuration")
    if proposal.observable not in (config.metrics or (config.gates.primary.name,)):
        found.append(f"{proposal.observable} is no measure of this campaign")
    if proposal.sign not in (1, -1):
        found.append(f"sign is 1 or -1, not {proposal.sign}")
    if not found:
        overrides = combined(parent, proposal.change, base)
        if overrides == combined(parent, {}, base):
            found.append("it changes nothing: the parent has these values already")
        elif other := tried.get(digest(overrides)):
            found.append(f"it is the same configuration as {other}")
    return found


def as_arguments(overrides: Mapping[str, Any]) -> list[str]:
    """`key=value` for a Hydra command line."""
    return [f"{key}={_argument(value)}" for key, value in overrides.items()]


def strays(
    parent: Mapping[str, Any], own: Mapping[str, Any], overrides: Mapping[str, Any]
) -> list[str]:
    """Where what a run was really configured with is not what was proposed, as messages.

    Args:
        parent: the base run's whole configuration, dotted, as it wrote it.
        own: the candidate's.
        overrides: of the candidate against the base.
    """
    found = []
    for key in sorted(parent.keys() | own.keys()):
        before, after = parent.get(key), own.get(key)
        if key in overrides:
            if not _same(after, overrides[key]):
                found.append(f"{key} is {after}, not the proposed {overrides[key]}")
        elif not _same(before, after):
            found.append(f"{key} is {after} instead of {before}, which nobody proposed")
    return found


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
