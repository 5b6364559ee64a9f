"""What a campaign can do next."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from autoresearch.loop.ledger import RowKind
from autoresearch.types.task import Task


@dataclass(frozen=True)
class Record:
    """Write a decision into the ledger."""

    kind: RowKind
    data: dict[str, Any]


@dataclass(frozen=True)
class Perform:
    """Run these tasks; none of them has been finished or has failed for good."""

    tasks: list[Task]


@dataclass(frozen=True)
class Ask:
    """Ask the proposer for one proposal."""


@dataclass(frozen=True)
class Stop:
    """Nothing is left to do."""

    reason: str


Step = Record | Perform | Ask | Stop
