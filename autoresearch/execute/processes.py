"""Where tasks run: processes of this machine, or of a cluster's (`cluster.py`).

An executor starts commands and tells how they ended. It decides nothing and remembers nothing: what
happened is in the ledger, and what was found in files.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from autoresearch.execute.leash import leashed
from common.runs import ROOT

RUNS = "<runs>"
"""Stands in a job's words for the directory of runs, wherever that is where the job runs."""

TOKEN = "AUTORESEARCH_ATTEMPT"
"""Environment variable by which the processes of an attempt are known, also after a kill."""

POLL_SECONDS = 0.05


@dataclass(frozen=True)
class Job:
    """A command to run.

    Attributes:
        token: of the attempt.
        words: arguments of python, the first a script (of this project, or as it stands) or -c.
        runs: directory of runs; the words have RUNS for it.
        needs: names of the run directories there that it reads.
        makes: name of the one that it writes.
        log: file that its output is appended to.
        timeout: seconds until it is ended.
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
        """Program and arguments, on the machine that asks."""
        script, *rest = (word.replace(RUNS, str(self.runs)) for word in self.words)
        own = ROOT / script
        return [sys.executable, str(own) if own.is_file() else script, *rest]


@dataclass(frozen=True)
class Ended:
    """How a job ended.

    Attributes:
        token: whose.
        code: exit status, negative for a signal.
        timed_out: it was ended because it took too long.
        seconds: that it ran.
        lost: it ended with its node, and nothing of it came back; says how.
    """

    token: str
    code: int
    timed_out: bool
    seconds: float
    lost: str = ""


class Executor(Protocol):
    """Runs jobs, several at a time.

    Attributes:
        forgets: what a lost attempt has computed is lost with it, and cannot be taken up.
    """

    forgets: bool

    def start(self, job: Job) -> int:
        """Start a job; returns the id of its process group, 0 where it has none here."""

    def wait(self) -> list[Ended]:
        """Block until at least one job has ended, and tell of all that have."""

    def stop(self) -> None:
        """End everything that runs."""


class LocalExecutor:
    """Processes of this machine, each in a group of its own that is ended as a whole.

    Args:
        grace: seconds between TERM and KILL.
        leashed: they end by themselves once this process is gone, however it went.
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

    def wait(self) -> list[Ended]:
        while self._running:
            ended = []
            for token, (job, process, began) in list(self._running.items()):
                seconds = time.monotonic() - began
                if (code := process.poll()) is not None:
                    # What it started may have outlived it.
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
    """End what outlived the campaign, or the process, that started it, in whatever group it is
    now, and wait until it is gone.

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
