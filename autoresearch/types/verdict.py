"""What a gate decides: whether a candidate passes, in words why not, and the numbers behind it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any

from pydantic import BeforeValidator

from autoresearch.types.plain import read
from autoresearch.types.run import Failure
from common.statistics import Estimate

EValue = Annotated[float, BeforeValidator(lambda value: math.inf if value is None else value)]
"""Evidence. JSON has no infinity, so evidence too large for a float is null in a ledger."""


class Gate(StrEnum):
    """The gates, in their order; docs/autoresearch.md tells what each asks.

    There is one HALVING gate per rung, named by `rung_name`.
    """

    ADMISSION = "G0"
    SMOKE = "G1"
    HALVING = "G2"
    SCREEN = "G3"
    SEEDS = "G4"
    MECHANISM = "G5"


def rung_name(index: int) -> str:
    """The name of the `index`-th rung's gate, from 1 on: G2.1."""
    return f"{Gate.HALVING}.{index}"


class Outcome(StrEnum):
    """How a screen (WIN, FUTILE, HARM, CAP) or a claim over seeds (WIN, LOSS, HOPELESS, NOT_TRIED)
    ended."""

    WIN = "win"
    FUTILE = "futile"
    HARM = "harm"
    CAP = "cap"
    LOSS = "loss"
    HOPELESS = "hopeless"
    NOT_TRIED = "not tried"


class Prediction(StrEnum):
    """Whether what a hypothesis predicts came."""

    CONFIRMED = "confirmed"
    REFUTED = "refuted"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True)
class Verdict:
    """Of any gate.

    Attributes:
        passed: the candidate goes on.
        reasons: in words, why it does not.
    """

    passed: bool
    reasons: list[str]

    @property
    def word(self) -> str:
        """The verdict in a word."""
        return "passed" if self.passed else "out"

    def plain(self) -> dict[str, Any]:
        """As the ledger holds it: an optional number that does not exist is left out."""
        plain = {}
        for one in dataclasses.fields(self):
            value = getattr(self, one.name)
            if value is not None or one.default is not None:
                plain[one.name] = _plain(value)
        return plain


def _plain(value: Any) -> Any:
    """`value` with every `Estimate` in it as {"mean", "low", "high", "n"}."""
    if isinstance(value, Estimate):
        return value.to_dict()
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if dataclasses.is_dataclass(value):
        pairs = ((one.name, getattr(value, one.name)) for one in dataclasses.fields(value))
        return {name: _plain(item) for name, item in pairs}
    return value


@dataclass(frozen=True)
class FailedRun(Verdict):
    """Of a candidate whose run failed: a type, and no number."""

    failure: Failure

    @classmethod
    def of(cls, failure: Failure, detail: str) -> FailedRun:
        """The verdict on a run that failed like this."""
        return cls(False, [f"{failure}: {detail}"], failure)

    @property
    def word(self) -> str:
        return str(self.failure)


@dataclass(frozen=True)
class SmokeVerdict(Verdict):
    """Of G1. `screens`: every named failure that was looked for; not 0 where it shows."""

    screens: dict[str, Any]


@dataclass(frozen=True)
class RungVerdict(Verdict):
    """Of a rung of G2.

    Attributes:
        mean: of the primary measure.
        control: the parent's mean; None where the parent failed.
        rank: among the candidates, from 1 on.
    """

    mean: float
    control: float | None
    rank: int


@dataclass(frozen=True)
class GuardEvidence:
    """Evidence (e-values) about a guard in a screen.

    Attributes:
        difference: mean of how much worse than the parent.
        mean: of the guard's measure.
        margin_holds, margin_breaks: that it is worse by less, or by more, than the margin.
        ceiling_holds, ceiling_breaks: that it is below, or above, the ceiling.
    """

    difference: float
    mean: float
    margin_holds: EValue
    margin_breaks: EValue
    ceiling_holds: EValue
    ceiling_breaks: EValue


@dataclass(frozen=True)
class ScreenVerdict(Verdict):
    """Of G3.

    Attributes:
        outcome: None if more units are needed.
        units: judged.
        gain: of the primary over the parent's; positive is better.
        e_value: the evidence for a gain after the last unit, and `e_curve` after each.
        guards: by measure.
    """

    outcome: Outcome | None
    units: int
    gain: Estimate
    e_value: EValue
    e_curve: list[EValue]
    guards: dict[str, GuardEvidence]

    @property
    def word(self) -> str:
        return str(self.outcome)


@dataclass(frozen=True)
class GuardTest:
    """A guard over training seeds: means with intervals, and p-values that each limit holds."""

    difference: Estimate
    mean: Estimate
    margin_p: float
    ceiling_p: float


@dataclass(frozen=True)
class SeedsVerdict(Verdict):
    """Of G4, and of the final measurement on sealed units.

    Attributes:
        outcome: None if more seeds are needed.
        seeds: how many were judged.
        wanted: how many the claim takes.
        alpha: what the claim may spend of the error budget.
        gains: of the primary over the parent's, by seed; `gain` is their mean.
        p: of the exact test; None where it was ended before the last seed.
        guards: by measure; None likewise.
    """

    outcome: Outcome | None
    seeds: int
    wanted: int
    alpha: float
    gains: list[float]
    gain: Estimate
    p: float | None = None
    guards: dict[str, GuardTest] | None = None

    @property
    def word(self) -> str:
        return str(self.outcome)


@dataclass(frozen=True)
class NotTried(Verdict):
    """Of G4, of a candidate that won its screen while others had more evidence."""

    outcome: Outcome

    @property
    def word(self) -> str:
        return str(self.outcome)


@dataclass(frozen=True)
class MechanismVerdict(Verdict):
    """Of G5.

    Attributes:
        verdict: whether what was predicted came.
        observable, sign: what was predicted: a measure, and whether it grows (1) or falls (-1).
        change: of the observable against the parent's; None where it was measured too rarely.
        by: what was compared, such as training seeds.
    """

    verdict: Prediction
    observable: str
    sign: int
    change: Estimate | None = None
    by: str | None = None

    @property
    def word(self) -> str:
        return str(self.verdict)


_KINDS = {
    Gate.SMOKE: SmokeVerdict,
    Gate.HALVING: RungVerdict,
    Gate.SCREEN: ScreenVerdict,
    Gate.SEEDS: SeedsVerdict,
    Gate.MECHANISM: MechanismVerdict,
}


def verdict_of(gate: str, data: Mapping[str, Any]) -> Verdict:
    """The verdict of `gate` whose plain form is `data`; `ValueError` if it is none."""
    if "failure" in data:
        return read(FailedRun, data)
    if data.get("outcome") == Outcome.NOT_TRIED:
        return read(NotTried, data)
    return read(_KINDS[Gate(gate.partition(".")[0])], data)
