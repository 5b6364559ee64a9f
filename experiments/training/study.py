"""Runs the ablation study: one train_ppo.py process per variant and seed, several at a time.

All information about a run is in its directory. So a study that was killed can be started again:
it skips finished runs and resumes unfinished ones.
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
from experiments.training.finished import differences, learning_settings
from ppo.config import PPOTrainConfig

POLL_SECONDS = 0.2

State = Literal["finished", "unfinished", "absent", "busy"]


@dataclass(frozen=True, eq=False)
class Task:
    """One run: a variant with a seed.

    Attributes:
        variant, seed: name of the variant and training seed.
        path: its run directory.
        overrides: overrides of train_ppo.py, without those for the directory.
        config: the resolved configuration.
    """

    variant: str
    seed: int
    path: Path
    overrides: tuple[str, ...]
    config: dict[str, Any]

    @classmethod
    def of(cls, root: Path, variant: str, seed: int, overrides: Sequence[str]) -> "Task":
        """The run of `variant` below `root`; raises `ConfigError` for invalid overrides."""
        overrides = (*overrides, f"seed={seed}")
        return cls(variant, seed, root / f"{variant}-s{seed}", overrides, composed(overrides))

    @property
    def log(self) -> Path:
        """The file with the output of the process, from all its starts."""
        return self.path.parent / "logs" / f"{self.path.name}.log"

    def state(self) -> State:
        """The state of the run.

        Raises `UserError` if the directory is not a run or a run with other settings.
        """
        if not self.path.exists():
            return "absent"
        if not (self.path / "manifest.json").is_file():
            self._remove_leftovers()
            return "absent"
        run = Run.open(self.path)
        changed = differences([learning_settings(run.config), learning_settings(self.config)])
        if changed:
            changes = ", ".join(f"{key}={old} (now {new})" for key, (old, new) in changed.items())
            raise UserError(f"{self.path} was made with {changes}; choose another run_root")
        try:
            with run.lock():
                finished = (self.path / "result.json").is_file()
        except ConfigError:  # the run's process can outlive a study that was killed
            return "busy"
        return "finished" if finished else "unfinished"

    def start(self, state: State) -> subprocess.Popen:
        """Start or resume the run in a new process."""
        place = (f"run_root={self.path.parent}", f"name=./{self.path.name}")
        arguments = (f"resume={self.path}",) if state == "unfinished" else (*self.overrides, *place)
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with open(self.log, "ab") as log:
            return subprocess.Popen(
                [sys.executable, ROOT / "train_ppo.py", *arguments],
                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
            )  # fmt: skip

    def last_line(self) -> str:
        """The last line that the process printed."""
        lines = self.log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return lines[-1] if lines else "it printed nothing"

    def _remove_leftovers(self) -> None:
        """Remove the files of a process that died while it was creating the run directory."""
        foreign = [
            path.name
            for path in self.path.rglob("*")
            if path.is_file() and path.name != "config.yaml" and not path.name.startswith(".")
        ]
        if foreign:
            raise UserError(f"{self.path} is not a run directory: it holds {', '.join(foreign)}")
        shutil.rmtree(self.path)


def composed(overrides: Sequence[str]) -> dict[str, Any]:
    """The resolved configuration of train_ppo.py with `overrides`, as plain data."""
    return to_plain(compose("train_ppo", PPOTrainConfig, overrides), finite=False)


def run_all(tasks: Sequence[Task], jobs: int, say: Callable[[str], None]) -> dict[str, str]:
    """Run the tasks that are not finished, `jobs` at a time.

    Returns the failed runs, each with the last line that it printed. A failure does not stop the
    other runs. If this process is interrupted, it ends its runs first; they can be resumed.
    """
    pending, active = deque(tasks), {}
    failed: dict[str, str] = {}
    waiting: set[Task] = set()
    try:
        while pending or active:
            for _ in range(len(pending)):  # each task once, so busy ones do not block the loop
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
                        say(f"{name}: another process is running it; waiting")
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
                    failed[name] = task.last_line()
                    say(f"{name}: FAILED ({process.returncode}): {failed[name]} ({task.log})")
                else:
                    completed = len(tasks) - len(pending) - len(active)
                    seconds = time.perf_counter() - began
                    say(f"{name}: done in {seconds:.0f} s, {completed} of {len(tasks)}")
    finally:
        for process, _ in active.values():
            process.terminate()
        for process, _ in active.values():
            process.wait()
    return failed


@contextmanager
def only_one(root: Path) -> Iterator[None]:
    """Lock the study below `root`; raises `ConfigError` if another process is running it."""
    root.mkdir(parents=True, exist_ok=True)
    with open(root / ".study.lock", "wb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(f"{root}: another process is running this study") from None
        yield
