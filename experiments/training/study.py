"""Runs the ablation study: one train_ppo.py process per variant and seed, several at a time.

Everything that is known about a run lies in its directory, so a study that was killed, by whatever,
goes on where it was: finished runs are skipped and unfinished ones resumed.
"""

import fcntl
import shutil
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from common.config import compose
from common.errors import ConfigError, UserError
from common.files import to_plain
from common.runs import ROOT, Run
from experiments.training.finished import differences, learning
from ppo.config import PPOTrainConfig

POLL_SECONDS = 0.2

State = Literal["finished", "unfinished", "absent", "busy"]


@dataclass(frozen=True, eq=False)
class Task:
    """One run: a variant with a seed.

    Attributes:
        variant, seed: which.
        path: its run directory.
        overrides: of train_ppo.py, all but the directory.
        config: what they compose to.
    """

    variant: str
    seed: int
    path: Path
    overrides: tuple[str, ...]
    config: dict[str, Any]

    @classmethod
    def of(cls, root: Path, variant: str, seed: int, overrides: Sequence[str]) -> "Task":
        """The run of `variant` below `root`; `ConfigError` if the overrides do not compose."""
        given = (*overrides, f"seed={seed}")
        return cls(variant, seed, root / f"{variant}-s{seed}", given, composed(given))

    @property
    def log(self) -> Path:
        """Where the process prints to, from all its starts."""
        return self.path.parent / "logs" / f"{self.path.name}.log"

    def state(self) -> State:
        """How far the run is.

        Raises `UserError` if the directory holds anything but this run: made by other settings,
        or not a run.
        """
        if not self.path.exists():
            return "absent"
        if not (self.path / "manifest.json").is_file():
            self._remove_stillborn()
            return "absent"
        run = Run.open(self.path)
        foreign = differences([learning(run.config), learning(self.config)])
        if foreign:
            changes = ", ".join(f"{key}={was} (now {now})" for key, (was, now) in foreign.items())
            raise UserError(f"{self.path} was made with {changes}; choose another run_root")
        try:
            with run.lock():
                done = (self.path / "result.json").is_file()
        except ConfigError:  # the process of a study that was killed itself may live on
            return "busy"
        return "finished" if done else "unfinished"

    def start(self, state: State) -> subprocess.Popen:
        """Start the run, or resume it, as a process of its own."""
        place = (f"run_root={self.path.parent}", f"name=./{self.path.name}")
        arguments = (f"resume={self.path}",) if state == "unfinished" else (*self.overrides, *place)
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with open(self.log, "ab") as log:
            return subprocess.Popen(
                [sys.executable, ROOT / "train_ppo.py", *arguments],
                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
            )  # fmt: skip

    def complaint(self) -> str:
        """The last line that the process printed."""
        lines = self.log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return lines[-1] if lines else "it printed nothing"

    def _remove_stillborn(self) -> None:
        """Remove what a process left that died while it made the run directory."""
        foreign = [
            path.name
            for path in self.path.rglob("*")
            if path.is_file() and path.name != "config.yaml" and not path.name.startswith(".")
        ]
        if foreign:
            raise UserError(f"{self.path} is not a run directory: it holds {', '.join(foreign)}")
        shutil.rmtree(self.path)


def composed(overrides: Sequence[str]) -> dict[str, Any]:
    """The resolved configuration that train_ppo.py makes of `overrides`, as plain data."""
    return to_plain(compose("train_ppo", PPOTrainConfig, overrides), finite=False)


def run_all(tasks: Sequence[Task], jobs: int, say: Callable[[str], None]) -> dict[str, str]:
    """Run what is not finished, `jobs` at a time; returns what failed, with its last words.

    A failure stops no other run. If this process is interrupted, its runs are ended first; they
    can be resumed.
    """
    pending, active = deque(tasks), {}
    failed: dict[str, str] = {}
    waiting: set[Task] = set()
    try:
        while pending or active:
            for _ in range(len(pending)):  # each at most once, or busy ones would be asked for ever
                if len(active) >= jobs:
                    break
                task = pending.popleft()
                name = task.path.name
                try:
                    state = task.state()
                except UserError as error:
                    failed[name] = str(error)
                    say(f"{name}: FAILED: {error}")
                    continue
                if state == "finished":
                    say(f"{name}: already finished")
                elif state == "busy":
                    pending.append(task)
                    if task not in waiting:
                        say(f"{name}: waiting for another process that runs it")
                    waiting.add(task)
                else:
                    active[task] = task.start(state), time.perf_counter()
                    say(f"{name}: {'resumed' if state == 'unfinished' else 'started'}")
            time.sleep(POLL_SECONDS)
            ended = [task for task, (process, _) in active.items() if process.poll() is not None]
            for task in ended:
                process, began = active.pop(task)
                name = task.path.name
                if process.returncode:
                    failed[name] = task.complaint()
                    say(f"{name}: FAILED ({process.returncode}): {failed[name]} ({task.log})")
                else:
                    done, seconds = len(tasks) - len(pending) - len(active), time.perf_counter()
                    say(f"{name}: done in {seconds - began:.0f} s, {done} of {len(tasks)}")
    finally:
        for process, _ in active.values():
            process.terminate()
        for process, _ in active.values():
            process.wait()
    return failed


@contextmanager
def only_one(root: Path) -> Iterator[None]:
    """Hold the study below `root`; `ConfigError` if another process is at it."""
    root.mkdir(parents=True, exist_ok=True)
    with open(root / ".study.lock", "wb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(f"{root}: another process is running this study") from None
        yield
