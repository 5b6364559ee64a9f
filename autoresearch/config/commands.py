"""The commands that a campaign runs, and where they leave their results."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from autoresearch.config.checks import require

FIELD = re.compile(r"\{(\w+)\}")
"""A word in braces, which a command has filled in."""


@dataclass(frozen=True)
class Reading:
    """Where a judging command leaves what it measured.

    Attributes:
        file: JSON below the directory `{into}`; `*` stands for a run directory's name.
        rows: key of a list with one mapping per unit (track).
        unit: key of a row that names its unit.
        columns: instead of rows, key of a mapping from measure to a list with a number per unit.
    """

    file: str
    rows: str = ""
    unit: str = "seed"
    columns: str = ""

    def __post_init__(self) -> None:
        require(bool(self.rows) != bool(self.columns), "rows or columns, one of the two")


@dataclass(frozen=True)
class Commands:
    """How to train and to judge, as arguments of python; words in braces are filled in.

    Attributes:
        train: {root}/{name} is the run directory to make, {seed} and {budget} as they say; the
            candidate's `key=value` follow at the end.
        resume: the same for a run directory {run} that a killed process left.
        sealed: words that follow `judge` where the units are the sealed ones.
        judge: {run} is a trained run directory, {into} where results go, {units} which units
            (1000000-1000031), {first} and {count} the same as numbers.
        reading: what judging leaves.
        ticks: key of the run's result.json that tells what was spent of the budget.
        screens: prefix of the keys of metrics.jsonl's last row that are 1 where a named failure
            shows; what follows the prefix is its name.
        measures: prefixes of keys of that row that a proposer may see.
    """

    train: tuple[str, ...]
    judge: tuple[str, ...]
    reading: Reading
    resume: tuple[str, ...] = ()
    sealed: tuple[str, ...] = ()
    ticks: str = "ticks"
    screens: str = "diagnostics/"
    measures: tuple[str, ...] = ("episode/", "action/", "ppo/", "diagnostics/")

    def __post_init__(self) -> None:
        judged = ("run", "root", "name", "into", "first", "count", "units")
        _fields("train", self.train, ("root", "name", "seed", "budget"), ("name", "seed", "budget"))
        _fields("resume", self.resume, ("run",), ("run",) if self.resume else ())
        _fields("judge", self.judge, judged, ("run",))
        _fields("sealed", self.sealed, judged, ())
        units = set(FIELD.findall(" ".join(self.judge)))
        require(
            "units" in units or {"first", "count"} <= units,
            "judge is not told which units: it needs {units}, or {first} and {count}",
        )


def _fields(name: str, words: Sequence[str], known: Sequence[str], needed: Sequence[str]) -> None:
    """Check that a command's fields can be filled in and that it has what it needs."""
    require(bool(words) or not needed, f"{name} is empty")
    found = FIELD.findall(" ".join(words))
    for word in found:
        told = ", ".join(f"{{{one}}}" for one in known)
        require(word in known, f"{name}: {{{word}}} cannot be filled in; there are {told}")
    for word in needed:
        require(word in found, f"{name} needs {{{word}}}: without it every run would be alike")
