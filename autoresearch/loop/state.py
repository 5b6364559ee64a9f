"""The state of a campaign, rebuilt from the rows of its ledger and nothing else."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from autoresearch.loop.ledger import Row, RowKind
from autoresearch.types.proposal import Proposal
from autoresearch.types.run import BASE, Attempt, Failure, RunState, Status
from autoresearch.types.task import TrainTask, task_of
from autoresearch.types.verdict import (
    Gate,
    MechanismVerdict,
    ScreenVerdict,
    SeedsVerdict,
    Verdict,
    verdict_of,
)
from common.errors import UserError
from common.statistics import Estimate


@dataclass
class Candidate:
    """A configuration on trial.

    Attributes:
        id: such as g003_c03, the third of generation 3.
        proposal: which it came from.
        overrides: dotted key to value, against the base.
        digest: of the overrides.
        judged: verdict by gate, in order.
        promoted: it became a parent.
    """

    id: str
    proposal: Proposal
    overrides: dict[str, Any]
    digest: str
    judged: dict[str, Verdict] = field(default_factory=dict)
    promoted: bool = False

    def passed(self, gate: str) -> bool:
        """Whether `gate` judged it and let it pass."""
        return gate in self.judged and self.judged[gate].passed

    @property
    def screen(self) -> ScreenVerdict | None:
        """The verdict of G3, if its runs did not fail."""
        return _if(ScreenVerdict, self.judged.get(Gate.SCREEN))

    @property
    def seeds(self) -> SeedsVerdict | None:
        """The verdict of G4, if it was tried and its runs did not fail."""
        return _if(SeedsVerdict, self.judged.get(Gate.SEEDS))

    @property
    def mechanism(self) -> MechanismVerdict | None:
        """The verdict of G5."""
        return _if(MechanismVerdict, self.judged.get(Gate.MECHANISM))

    @property
    def gain(self) -> Estimate | None:
        """Of the primary measure over its parent's: over training seeds if there are any, else over
        the units of one."""
        judged = self.seeds or self.screen
        return judged.gain if judged else None

    @property
    def last_gate(self) -> str:
        """The last gate that decided on it; empty before the first. G5 decides nothing."""
        return next((name for name in reversed(self.judged) if name != Gate.MECHANISM), "")

    @property
    def verdict(self) -> str:
        """The last gate's verdict in a word; empty before the first."""
        return self.judged[self.last_gate].word if self.last_gate else ""

    @property
    def change(self) -> str:
        """What it changes in its parent: `ppo.gamma=0.97, ppo.lam=0.9`."""
        return ", ".join(f"{key}={value}" for key, value in self.proposal.change.items())

    @property
    def out(self) -> bool:
        """It failed a gate that decides."""
        return any(not v.passed for gate, v in self.judged.items() if gate != Gate.MECHANISM)


def _if(kind: type, verdict: Verdict | None) -> Any:
    return verdict if isinstance(verdict, kind) else None


@dataclass
class Generation:
    """One round of proposals.

    Attributes:
        number: from 1 on.
        parent: id of a candidate, or BASE.
        candidates: by id, in the order of their proposals.
        refused: rows of proposals that were refused, or that did not come.
        refused_in_a_row: how many since the last candidate.
        exhausted: the proposer has no more proposals.
        closed: all its decisions are made.
    """

    number: int
    parent: str
    candidates: dict[str, Candidate] = field(default_factory=dict)
    refused: list[dict[str, Any]] = field(default_factory=list)
    refused_in_a_row: int = 0
    exhausted: bool = False
    closed: bool = False


@dataclass
class State:
    """The whole campaign.

    Attributes:
        campaign: data of the first row: configuration, command and code.
        generations: in order.
        runs: by key.
        resumes: how many times a later process went on with it.
        ended: why the search ended, if it has.
        opened: data of the row that opened the sealed units, if they are.
        final: the verdict on them.
        tokens: spent by proposers.
    """

    campaign: dict[str, Any] = field(default_factory=dict)
    generations: list[Generation] = field(default_factory=list)
    runs: dict[str, RunState] = field(default_factory=dict)
    resumes: int = 0
    ended: str | None = None
    opened: dict[str, Any] | None = None
    final: Verdict | None = None
    tokens: int = 0

    @classmethod
    def of(cls, rows: Iterable[Row]) -> State:
        """The state after `rows`; `UserError` for one that no campaign writes."""
        state = cls()
        for row in rows:
            try:
                state.apply(row)
            except (LookupError, TypeError, AttributeError, ValueError) as error:
                raise UserError(
                    f"ledger line {row.number + 1}: no campaign writes such a row ({error!r})"
                ) from None
        return state

    @property
    def generation(self) -> Generation | None:
        """The last generation, if there is one."""
        return self.generations[-1] if self.generations else None

    @property
    def candidates(self) -> dict[str, Candidate]:
        """All candidates, by id."""
        return {c.id: c for g in self.generations for c in g.candidates.values()}

    @property
    def parent(self) -> str:
        """The next generation's parent: the last promoted candidate, or BASE."""
        promoted = [c.id for c in self.candidates.values() if c.promoted]
        return promoted[-1] if promoted else BASE

    def overrides(self, name: str) -> dict[str, Any]:
        """The overrides of a candidate, or of BASE."""
        return {} if name == BASE else self.candidates[name].overrides

    @property
    def tried(self) -> dict[str, str]:
        """Digest of overrides to the first candidate that has them."""
        first: dict[str, str] = {}
        for candidate in self.candidates.values():
            first.setdefault(candidate.digest, candidate.id)
        return first

    @property
    def ticks(self) -> int:
        """Spent of training budgets by all attempts."""
        return sum(a.ticks for run in self.runs.values() for a in run.attempts)

    @property
    def seconds(self) -> float:
        """Spent in processes by all attempts."""
        return sum(a.seconds for run in self.runs.values() for a in run.attempts)

    def run(self, name: str) -> RunState:
        """The run with the id `name`."""
        return next(run for run in self.runs.values() if run.id == name)

    @property
    def training(self) -> dict[str, TrainTask]:
        """Every training task that has a run, by key."""
        return {key: run.task for key, run in self.runs.items() if isinstance(run.task, TrainTask)}

    def apply(self, row: Row) -> None:
        """Take in one row."""
        data = row.data
        match row.kind:
            case RowKind.CAMPAIGN:
                self.campaign = data
            case RowKind.RESUMED:
                self.resumes += 1
                self.ended = None
            case RowKind.GENERATION:
                self.generations.append(Generation(data["number"], data["parent"]))
            case RowKind.PROPOSED:
                self._proposed(data)
            case RowKind.REFUSED:
                generation = self.generations[-1]
                generation.refused.append(data)
                generation.refused_in_a_row += 1
                generation.exhausted |= data.get("exhausted", False)
                self.tokens += data.get("tokens", 0)
            case RowKind.CLAIMED:
                task = task_of(data["task"], self.training)
                run = self.runs.setdefault(data["key"], RunState(data["run"], task))
                began = datetime.fromisoformat(row.time).timestamp()
                run.attempts.append(Attempt(data["attempt"], data["token"], began=began))
            case RowKind.RUNNING | RowKind.FINISHED | RowKind.FAILED:
                self._attempted(Status(row.kind), data)
            case RowKind.JUDGED:
                gate = data["gate"]
                self.candidates[data["candidate"]].judged[gate] = verdict_of(gate, data)
            case RowKind.PROMOTED:
                self.candidates[data["candidate"]].promoted = True
            case RowKind.CLOSED:
                self.generations[-1].closed = True
            case RowKind.ENDED:
                self.ended = data["reason"]
            case RowKind.OPENED:
                self.opened = data
            case RowKind.FINAL:
                self.final = verdict_of(Gate.SEEDS, data)

    def _proposed(self, data: dict[str, Any]) -> None:
        generation, proposal = self.generations[-1], Proposal(**data["proposal"])
        generation.candidates[data["candidate"]] = Candidate(
            data["candidate"], proposal, data["overrides"], data["digest"]
        )
        generation.refused_in_a_row = 0
        self.tokens += proposal.cost.get("tokens", 0)

    def _attempted(self, status: Status, data: dict[str, Any]) -> None:
        run = self.run(data["run"])
        attempt = run.attempts[data["attempt"] - 1]
        attempt.status = status
        if status is Status.RUNNING:
            attempt.pid = data["pid"]
            return
        attempt.seconds, attempt.ticks = data["seconds"], data.get("ticks", 0)
        if status is Status.FINISHED:
            run.artifact = data["artifact"]
        else:
            attempt.failure, attempt.detail = Failure(data["reason"]), data["detail"]
