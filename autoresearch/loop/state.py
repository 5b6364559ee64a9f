"""What is known of a campaign, rebuilt from its ledger and nothing else."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from autoresearch.loop.ledger import Row

BASE = "base"
"""The name of the configuration that a campaign starts from."""

LOST = "lost"
"""Reason of an attempt that ended with its process or node, through no fault of its own."""

INTERRUPTED = "interrupted"
"""Reason of one that ended with the campaign's own process, as often as that may happen."""


@dataclass
class Attempt:
    """One start of a run.

    Attributes:
        number: from 1 on.
        token: names the attempt's processes.
        status: claimed, running, finished, failed.
        pid: of its process group, once known.
        reason, detail: of a failure.
        seconds, ticks: what it took.
        began: when it was claimed, as seconds since 1970.
    """

    number: int
    token: str
    status: str = "claimed"
    pid: int | None = None
    reason: str = ""
    detail: str = ""
    seconds: float = 0.0
    ticks: int = 0
    began: float = 0.0


@dataclass
class RunState:
    """One task and its attempts.

    Attributes:
        id: run_008.
        key: what it computes; a second wish for the same is the same run.
        task: as claimed.
        attempts: in order.
        artifact: hash of what it found, once finished.
    """

    id: str
    key: str
    task: dict[str, Any]
    attempts: list[Attempt] = field(default_factory=list)
    artifact: str | None = None

    @property
    def last(self) -> Attempt:
        return self.attempts[-1]

    @property
    def finished(self) -> bool:
        return self.artifact is not None

    @property
    def open(self) -> bool:
        """An attempt was begun and nothing is known of its end."""
        return self.last.status in ("claimed", "running")

    def failed(self, attempts: int) -> bool:
        """For good: by its own fault, or lost as often as it may be."""
        if self.finished or self.open:
            return False
        lost = [attempt for attempt in self.attempts if attempt.reason == LOST]
        return self.last.reason not in (LOST, INTERRUPTED) or len(lost) >= attempts


@dataclass
class Candidate:
    """A configuration on trial.

    Attributes:
        id: g003_c03.
        proposal: as the ledger holds it.
        overrides: against the base.
        digest: of them.
        judged: verdict and numbers by gate, in order.
        promoted: it became a parent.
    """

    id: str
    proposal: dict[str, Any]
    overrides: dict[str, Any]
    digest: str
    judged: dict[str, dict[str, Any]] = field(default_factory=dict)
    promoted: bool = False

    def passed(self, gate: str) -> bool:
        """Whether it went through `gate`."""
        return self.judged.get(gate, {}).get("passed") is True

    @property
    def last_gate(self) -> str:
        """The last gate that judged it, but for G5; empty before the first."""
        return next((name for name in reversed(self.judged) if name != "G5"), "")

    @property
    def verdict(self) -> str:
        """That gate's in a word: the type of a failure, an outcome, passed or out."""
        told = self.judged.get(self.last_gate)
        if told is None:
            return ""
        word = told.get("failure") or told.get("outcome")
        return word or ("passed" if told["passed"] else "out")

    @property
    def change(self) -> str:
        """What it changes in its parent: `ppo.gamma=0.97, ppo.lam=0.9`."""
        return ", ".join(f"{key}={value}" for key, value in self.proposal["change"].items())

    @property
    def out(self) -> bool:
        """It failed a gate that candidates have to pass."""
        return any(not told["passed"] for gate, told in self.judged.items() if gate != "G5")


@dataclass
class Generation:
    """One round of proposals.

    Attributes:
        number: from 1 on.
        parent: id of a candidate, or BASE.
        candidates: by id, in the order of their proposals.
        refused: proposals that G0 refused, with reasons.
        exhausted: the proposer has no more.
        closed: nothing more is to be done.
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
        campaign: data of the first row: configuration and hashes.
        generations: in order.
        runs: by key.
        resumes: how often it was taken up again.
        ended: why it ended, if it has.
        opened: since when its sealed units are open: the row's data.
        final: what was found on them.
        tokens: spent by proposers.
    """

    campaign: dict[str, Any] = field(default_factory=dict)
    generations: list[Generation] = field(default_factory=list)
    runs: dict[str, RunState] = field(default_factory=dict)
    resumes: int = 0
    ended: str | None = None
    opened: dict[str, Any] | None = None
    final: dict[str, Any] | None = None
    tokens: int = 0

    @classmethod
    def of(cls, rows: Iterable[Row]) -> State:
        """The state after `rows`."""
        state = cls()
        for row in rows:
            state.apply(row)
        return state

    @property
    def generation(self) -> Generation | None:
        """The last one."""
        return self.generations[-1] if self.generations else None

    @property
    def candidates(self) -> dict[str, Candidate]:
        """All of them, by id."""
        return {c.id: c for g in self.generations for c in g.candidates.values()}

    @property
    def parent(self) -> str:
        """Who the next generation's parent is: the last promoted one."""
        promoted = [c.id for c in self.candidates.values() if c.promoted]
        return promoted[-1] if promoted else BASE

    def overrides(self, name: str) -> dict[str, Any]:
        """Those of a candidate, or of BASE."""
        return {} if name == BASE else self.candidates[name].overrides

    @property
    def tried(self) -> dict[str, str]:
        """Digest of overrides to the first candidate that has them."""
        found: dict[str, str] = {}
        for candidate in self.candidates.values():
            found.setdefault(candidate.digest, candidate.id)
        return found

    @property
    def ticks(self) -> int:
        """Spent by all attempts."""
        return sum(a.ticks for run in self.runs.values() for a in run.attempts)

    @property
    def seconds(self) -> float:
        """Spent by all attempts."""
        return sum(a.seconds for run in self.runs.values() for a in run.attempts)

    def run(self, name: str) -> RunState:
        """The run with the id `name`."""
        return next(run for run in self.runs.values() if run.id == name)

    def apply(self, row: Row) -> None:
        """Take in one row."""
        data = row.data
        match row.kind:
            case "campaign":
                self.campaign = data
            case "resumed":
                self.resumes += 1
                self.ended = None
            case "generation":
                self.generations.append(Generation(data["number"], data["parent"]))
            case "proposed":
                generation = self.generations[-1]
                generation.candidates[data["candidate"]] = Candidate(
                    data["candidate"], data["proposal"], data["overrides"], data["digest"]
                )
                generation.refused_in_a_row = 0
                self.tokens += data["proposal"]["cost"].get("tokens", 0)
            case "refused":
                generation = self.generations[-1]
                generation.refused.append(data)
                generation.refused_in_a_row += 1
                generation.exhausted |= data.get("exhausted", False)
                self.tokens += data.get("tokens", 0)
            case "claimed":
                run = self.runs.setdefault(
                    data["key"], RunState(data["run"], data["key"], data["task"])
                )
                began = datetime.fromisoformat(row.time).timestamp()
                run.attempts.append(Attempt(data["attempt"], data["token"], began=began))
            case "running" | "finished" | "failed":
                self._attempted(row.kind, data)
            case "judged":
                self.candidates[data["candidate"]].judged[data["gate"]] = data
            case "promoted":
                self.candidates[data["candidate"]].promoted = True
            case "closed":
                self.generations[-1].closed = True
            case "ended":
                self.ended = data["reason"]
            case "opened":
                self.opened = data
            case "final":
                self.final = data

    def _attempted(self, kind: str, data: dict[str, Any]) -> None:
        run = self.run(data["run"])
        attempt = run.attempts[data["attempt"] - 1]
        attempt.status = kind
        if kind == "running":
            attempt.pid = data["pid"]
            return
        attempt.seconds, attempt.ticks = data["seconds"], data.get("ticks", 0)
        if kind == "finished":
            run.artifact = data["artifact"]
        else:
            attempt.reason, attempt.detail = data["reason"], data["detail"]
