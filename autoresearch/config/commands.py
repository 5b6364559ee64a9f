"""The commands that a campaign runs, and where they leave their results."""

from __future__ import annotations

import re
from collections.abc import Sequence

from autoresearch.config.checks import require
from common.schema import config_class

FIELD = re.compile(r"\{(\w+)\}")
"""A field of a command: a word in braces, which is replaced by its value."""


@config_class
class Reading:
    """Where a judging command leaves what it measured.

    Attributes:
        file: a JSON file below the directory {into}.
        rows: key of a list in it with one mapping per unit.
        unit: key of such a mapping that names its unit.
        columns: instead of rows: key of a mapping from each measure to a list of numbers, one per
            unit.
    """

    file: str
    rows: str = ""
    unit: str = "seed"
    columns: str = ""

    def __post_init__(self) -> None:
        require(bool(self.rows) != bool(self.columns), "rows or columns, one of the two")


@config_class
class Commands:
    """How to train and to judge: words after `python`, in which {fields} are replaced.

    Attributes:
        train: makes the run directory {root}/{name} with {seed} and {budget}; the candidate's
            key=value words follow at the end.
        resume: goes on with the run directory {run} that a killed process left; empty if that
            cannot be done.
        judge: measures the trained run directory {run} and writes into {into}; the units are
            {units} (such as 1000000-1000031), or {first} and {count}.
        sealed: words that follow judge if the units are the sealed ones.
        reading: what judging leaves.
        ticks: key of a run's result.json that says how much of the budget was spent.
        screens: prefix of measures in the last row of metrics.jsonl that are 1 where a named
            failure shows; the rest of the key is the failure's name.
        measures: prefixes of measures of that row that a proposer may see.
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
        judge = ("run", "root", "name", "into", "first", "count", "units")
        _check("train", self.train, ("root", "name", "seed", "budget"), ("name", "seed", "budget"))
        _check("resume", self.resume, ("run",), ("run",) if self.resume else ())
        _check("judge", self.judge, judge, ("run",))
        _check("sealed", self.sealed, judge, ())
        units = set(FIELD.findall(" ".join(self.judge)))
        require(
            "units" in units or {"first", "count"} <= units,
            "judge has no units: it needs {units}, or {first} and {count}",
        )


def _check(name: str, words: Sequence[str], known: Sequence[str], needed: Sequence[str]) -> None:
    """Check that every field of a command is known, and that those it needs are there."""
    require(bool(words) or not needed, f"{name} is empty")
    fields = FIELD.findall(" ".join(words))
    for field in fields:
        choices = ", ".join(f"{{{one}}}" for one in known)
        require(field in known, f"{name}: {{{field}}} cannot be replaced; there are {choices}")
    for field in needed:
        require(field in fields, f"{name} needs {{{field}}}: without it every run would be alike")
