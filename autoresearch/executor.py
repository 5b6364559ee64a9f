"""Where tasks run: processes of this machine.

An executor starts commands and tells how they ended. It decides nothing and remembers nothing: what
happened is in the ledger, and what was found in files.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

TOKEN = "AUTORESEARCH_ATTEMPT"
"""Environment variable by which the processes of an attempt are known, also after a kill."""

POLL_SECONDS = 0.05


@dataclass(frozen=True)
class Job:
    """A command to run.

    Attributes:
        token: of the attempt.
        command: program and arguments.
        log: file that its output is appended to.
        timeout: seconds until it is ended.
    """

    token: str
    command: Sequence[str]
    log: Path
    timeout: float


@dataclass(frozen=True)
class Ended:
    """How a job ended.

    Attributes:
        token: whose.
        code: exit status, negative for a signal.
        timed_out: it was ended because it took too long.
        seconds: that it ran.
    """

    token: str
    code: int
    timed_out: bool
    seconds: float


class Executor(Protocol):
    """Runs jobs, several at a time."""

    def start(self, job: Job) -> int:
        """Start a job; returns the id of its process group, 0 where it has none here."""

    def wait(self) -> list[Ended]:
        """Block until at least one job has ended, and tell of all that have."""

    def stop(self) -> None:
        """End everything that runs."""


class LocalExecutor:
    """Processes of this machine, each in a group of its own that is ended as a whole."""

    def __init__(self, grace: float) -> None:
        self.grace = grace
        self._running: dict[str, tuple[Job, subprocess.Popen, float]] = {}

    def start(self, job: Job) -> int:
        job.log.parent.mkdir(parents=True, exist_ok=True)
        with open(job.log, "ab") as log:
            process = subprocess.Popen(
                job.command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                start_new_session=True, env=os.environ | {TOKEN: job.token},
            )  # fmt: skip
        self._running[job.token] = job, process, time.monotonic()
        return process.pid

    def wait(self) -> list[Ended]:
        while self._running:
            ended = []
            for token, (job, process, began) in list(self._running.items()):
                seconds = time.monotonic() - began
                if (code := process.poll()) is not None:
                    # What it started may have outlived it.
                    end_group(process.pid, 0.0)
                    ended.append(Ended(token, code, False, seconds))
                elif seconds > job.timeout:
                    self._end(process)
                    ended.append(Ended(token, process.returncode, True, time.monotonic() - began))
            if ended:
                for one in ended:
                    del self._running[one.token]
                return ended
            time.sleep(POLL_SECONDS)
        return []

    def stop(self) -> None:
        for _, process, _ in self._running.values():
            self._end(process)
        self._running.clear()

    def _end(self, process: subprocess.Popen) -> None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(self.grace)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def end_group(group: int, grace: float) -> None:
    """End a process group that is not ours to wait for: TERM, after `grace` seconds KILL."""
    with suppress(ProcessLookupError, PermissionError):
        if grace:
            os.killpg(group, signal.SIGTERM)
            until = time.monotonic() + grace
            while time.monotonic() < until:
                os.killpg(group, 0)
                time.sleep(POLL_SECONDS)
        os.killpg(group, signal.SIGKILL)


def end_attempt(token: str, grace: float) -> None:
    """End what outlived the campaign that started it, and wait until it is gone.

    Found by its environment in Linux's /proc; elsewhere a process that goes on keeps its run's
    lock, and the next attempt says so.
    """
    for pid in _alive(token):
        with suppress(ProcessLookupError):
            end_group(os.getpgid(pid), grace)
    until = time.monotonic() + 10 + grace
    while _alive(token) and time.monotonic() < until:
        time.sleep(POLL_SECONDS)


def _alive(token: str) -> list[int]:
    wanted, found = f"{TOKEN}={token}".encode(), []
    for directory in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            # A zombie has no environment any more.
            if wanted in (directory / "environ").read_bytes().split(b"\0"):
                found.append(int(directory.name))
    return found
