"""What a proposer is told, and what it has to do: the contract of every proposer.

A proposer gets a `Brief` (settings and numbers, never logs or files) and returns one proposal. G0
decides whether the proposal may be tried. Equal briefs give equal proposals, so that a killed
campaign goes on with the same ones; a language model is the exception.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from autoresearch.types.overrides import combined, digest
from autoresearch.types.proposal import Proposal
from common.errors import UserError


class Exhausted(UserError):
    """A proposer has no more proposals, however often it is asked."""


@dataclass(frozen=True)
class Trial:
    """What became of an earlier candidate.

    Attributes:
        candidate: its id.
        overrides: dotted key to value, against the base.
        change: against its parent.
        gain: of the primary over its parent; None if it was not measured.
        verdict: of the last gate in a word, such as win, futile or crash.
        hypothesis: what was expected.
        mechanism: whether that came: confirmed, refuted or inconclusive.
    """

    candidate: str
    overrides: dict[str, Any]
    change: dict[str, Any]
    gain: float | None
    verdict: str
    hypothesis: str = ""
    mechanism: str = ""


@dataclass(frozen=True)
class Brief:
    """What a proposer may know.

    Attributes:
        generation: its number, from 1 on.
        ask: number of this question in the generation, from 0 on.
        total: number of this question in the campaign, from 0 on.
        base: the base's whole configuration, dotted key to value.
        parent: the parent's overrides of it.
        measures: of the parent's run: the last ones of training by name, and the means over judged
            units as judged/<name>.
        history: every earlier candidate, in order.
    """

    generation: int
    ask: int
    total: int
    base: dict[str, Any]
    parent: dict[str, Any]
    measures: dict[str, float | None] = field(default_factory=dict)
    history: tuple[Trial, ...] = ()

    def value(self, key: str) -> Any:
        """The parent's value of a setting."""
        return self.parent.get(key, self.base.get(key))

    def is_new(self, change: Mapping[str, Any]) -> bool:
        """Whether `change` leads to a configuration that is neither the parent's nor tried."""
        known = {digest(trial.overrides) for trial in self.history}
        known.add(digest(combined(self.parent, {}, self.base)))
        return digest(combined(self.parent, change, self.base)) not in known


class Proposer(Protocol):
    """Gives proposals."""

    def propose(self, brief: Brief) -> Proposal:
        """One proposal; raises `UserError`, with the reason, if there is none."""
