"""A run: one task, and the attempts that were made at it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from autoresearch.types.task import Task

BASE = "base"
"""The name of the configuration that a campaign starts from."""


class Status(StrEnum):
    """How far an attempt has come; each is the kind of the row that says so."""

    CLAIMED = "claimed"
    RUNNING = "running"
    FINISHED = "finished"
    FAILED = "failed"


class Failure(StrEnum):
    """Why an attempt failed.

    CRASH: it exited with an error. TIMEOUT: it took too long. REFUSED: its command refused the
    settings. UNUSABLE: it ended well and left nothing that can be used. LOST: it ended with its
    process or node, through no fault of its own. INTERRUPTED: it ended with the campaign's own
    process, which may happen any number of times.
    """

    CRASH = "crash"
    TIMEOUT = "timeout"
    REFUSED = "refused"
    UNUSABLE = "unusable"
    LOST = "lost"
    INTERRUPTED = "interrupted"


@dataclass
class Attempt:
    """One start of a run.

    Attributes:
        number: from 1 on.
        token: names the attempt's processes.
        status: how far it came.
        pid: id of its process group, once known.
        failure, detail: why it failed; None and empty otherwise.
        seconds, ticks: what it took.
        began: when it was claimed, in seconds since 1970.
    """

    number: int
    token: str
    status: Status = Status.CLAIMED
    pid: int | None = None
    failure: Failure | None = None
    detail: str = ""
    seconds: float = 0.0
    ticks: int = 0
    began: float = 0.0


@dataclass
class RunState:
    """One task and its attempts.

    Attributes:
        id: such as run_008.
        task: what it computes; a second wish for the same key is the same run.
        attempts: in order.
        artifact: hash of what it measured, once finished.
    """

    id: str
    task: Task
    attempts: list[Attempt] = field(default_factory=list)
    artifact: str | None = None

    @property
    def key(self) -> str:
        """The task's key."""
        return self.task.key

    @property
    def last(self) -> Attempt:
        """The last attempt."""
        return self.attempts[-1]

    @property
    def finished(self) -> bool:
        """An attempt ended well."""
        return self.artifact is not None

    @property
    def open(self) -> bool:
        """An attempt was begun, and nothing is known of its end."""
        return self.last.status in (Status.CLAIMED, Status.RUNNING)

    def failed(self, attempts: int) -> bool:
        """For good: by its own fault, or lost `attempts` times."""
        if self.finished or self.open:
            return False
        lost = [attempt for attempt in self.attempts if attempt.failure is Failure.LOST]
        by_itself = self.last.failure not in (Failure.LOST, Failure.INTERRUPTED)
        return by_itself or len(lost) >= attempts
