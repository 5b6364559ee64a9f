"""Runs commands as processes of this machine; `cluster.py` runs them on a Ray cluster.

An executor starts commands and reports how they ended. It decides nothing and keeps nothing: the
ledger holds what happened, and files hold what was measured.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from autoresearch.execute.leash import leashed
from common.runs import ROOT

RUNS = "<runs>"
"""Placeholder in a job's words for the directory of runs, whose path differs between machines."""

TOKEN = "AUTORESEARCH_ATTEMPT"
"""Environment variable that marks the processes of an attempt, so that they can be found later."""

POLL_SECONDS = 0.05


@dataclass(frozen=True)
class Job:
    """A command to run.

    Attributes:
        token: of the attempt.
        words: arguments of python; the first is -c, -m, or a script (a path in this project, or any
            other path).
        runs: directory of runs; the words have the placeholder RUNS for it.
        needs: names of the run directories that the job reads.
        makes: name of the run directory that it writes.
        log: file that its output is appended to.
        timeout: seconds after which it is ended.
    """

    token: str
    words: Sequence[str]
    runs: Path
    needs: tuple[str, ...]
    makes: str
    log: Path
    timeout: float

    @property
    def command(self) -> list[str]:
        """Program and arguments, with this machine's paths."""
        script, *rest = (word.replace(RUNS, str(self.runs)) for word in self.words)
        path = ROOT / script
        return [sys.executable, str(path) if path.is_file() else script, *rest]


@dataclass(frozen=True)
class Ended:
    """How a job ended.

    Attributes:
        token: of its attempt.
        code: exit status, negative for a signal.
        timed_out: it took too long and was killed.
        seconds: how long it ran.
        lost: why nothing of it came back, if its node died; otherwise empty.
    """

    token: str
    code: int
    timed_out: bool
    seconds: float
    lost: str = ""


class Executor(Protocol):
    """Runs jobs, several at a time.

    Attributes:
        forgets: the files of a lost attempt are lost too, so the next attempt starts anew.
    """

    forgets: bool

    def start(self, job: Job) -> int:
        """Start a job; returns the id of its process group, or 0 if it runs on another machine."""

    def wait(self, poll: Callable[[], None] = lambda: None) -> list[Ended]:
        """Block until at least one job has ended; returns all that have. Calls `poll` meanwhile."""

    def stop(self) -> None:
        """End everything that runs."""


class LocalExecutor:
    """Processes of this machine. Each leads a process group, which is ended as a whole.

    Args:
        grace: seconds between TERM and KILL.
        leashed: a process ends by itself when this one is gone, even after kill -9.
    """

    forgets = False

    def __init__(self, grace: float, leashed: bool = False) -> None:
        self.grace, self.leashed = grace, leashed
        self._running: dict[str, tuple[Job, subprocess.Popen, float]] = {}

    def start(self, job: Job) -> int:
        job.log.parent.mkdir(parents=True, exist_ok=True)
        command = leashed(job.command, self.grace) if self.leashed else job.command
        with open(job.log, "ab") as log:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                start_new_session=True, env=os.environ | {TOKEN: job.token},
            )  # fmt: skip
        self._running[job.token] = job, process, time.monotonic()
        return process.pid

    def wait(self, poll: Callable[[], None] = lambda: None) -> list[Ended]:
        while self._running:
            poll()
            ended = []
            for token, (job, process, began) in list(self._running.items()):
                seconds = time.monotonic() - began
                if (code := process.poll()) is not None:
                    # Processes that it started may have outlived it.
                    end_group(process.pid, 0.0)
                    end_attempt(token, 0.0)
                    ended.append(Ended(token, code, False, seconds))
                elif seconds > job.timeout:
                    self._end(token, process)
                    ended.append(Ended(token, process.returncode, True, time.monotonic() - began))
            if ended:
                for one in ended:
                    del self._running[one.token]
                return ended
            time.sleep(POLL_SECONDS)
        return []

    def stop(self) -> None:
        for token, (_, process, _) in self._running.items():
            self._end(token, process)
        self._running.clear()

    def _end(self, token: str, process: subprocess.Popen) -> None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(self.grace)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        end_attempt(token, 0.0)


def end_group(group: int, grace: float) -> None:
    """End a process group whose leader is not our child: TERM, and after `grace` seconds KILL."""
    with suppress(ProcessLookupError, PermissionError):
        if grace:
            os.killpg(group, signal.SIGTERM)
            until = time.monotonic() + grace
            while time.monotonic() < until:
                os.killpg(group, 0)
                time.sleep(POLL_SECONDS)
        os.killpg(group, signal.SIGKILL)


def end_attempt(token: str, grace: float) -> None:
    """End every process of an attempt, in whatever process group it is now, and wait until all are
    gone.

    Finds processes that outlived the campaign, or the process, that started them, by their
    environment in Linux's /proc. On other systems such a process goes on; it holds the lock of its
    run directory, and the next attempt reports that.
    """
    for pid in processes_of(token):
        with suppress(ProcessLookupError):
            end_group(os.getpgid(pid), grace)
    until = time.monotonic() + 10 + grace
    while processes_of(token) and time.monotonic() < until:
        time.sleep(POLL_SECONDS)


def processes_of(token: str) -> list[int]:
    """Ids of the processes of an attempt that are alive; empty where there is no /proc."""
    mark, pids = f"{TOKEN}={token}".encode(), []
    for directory in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            # A zombie has no environment any more.
            if mark in (directory / "environ").read_bytes().split(b"\0"):
                pids.append(int(directory.name))
    return pids
