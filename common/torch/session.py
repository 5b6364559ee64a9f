"""A training run of any trainer: its directory, processes, checkpoints, metrics and progress.

A trainer (`Learner`) does one update at a time and returns the state to save. The session does
everything else, in the same way for every training command:

    session = Session(COMMAND, config, overrides)        # device, processes, seeds; no files yet
    with session.open(resolved, labels, manifest):       # new or resumed run directory, locked
        session.restore(learner, read)                   # on a resume: go on from last.pt
        session.fit(learner)                             # updates, checkpoints, Ctrl-C
        return session.finish(results)                   # result.json and the last line

`resume=<run directory>` continues as if the run had never stopped. last.pt holds the whole state of
the learner and the session. Rows of metrics after it are removed and written again.
"""

from __future__ import annotations

import dataclasses
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import torch

from common.config import check_growth, resumed
from common.display import Display
from common.errors import UserError
from common.mirror import LoggerConfig, Mirror, Nothing, check_logger, open_mirror
from common.runs import Run, run_name
from common.seeding import seed_everything
from common.torch.device import make_fabric, set_threads


class SessionConfig(Protocol):
    """The settings that every training command has, among others."""

    seed: int
    device: str
    precision: str
    threads: int
    processes: int
    run_root: str
    name: str
    resume: str | None
    checkpoint_every: int
    profile: int
    display: bool
    logger: LoggerConfig


Config = TypeVar("Config", bound=SessionConfig)


@dataclass(frozen=True)
class Command:
    """What differs between training commands.

    Attributes:
        script: the script, such as train_ppo.py.
        room: first part of the name of a new run.
        budget: name of the setting that says how much to train.
        unit: unit of the budget; also the key of a row that says how much is spent.
        resumable: settings that a resumed run takes from the command line (dotted for one key of a
            group). All others come from the run.
        results: files of the run that are no longer correct when training continues.
        summary: makes one line for people from a row of metrics and the time left.
    """

    script: str
    room: str
    budget: str
    unit: str
    resumable: Sequence[str]
    results: Sequence[str]
    summary: Callable[[Mapping[str, Any], str], str]


class Learner(Protocol):
    """A trainer that a session runs. All processes call its methods at the same points."""

    @property
    def spent(self) -> int:
        """How much of the budget is spent."""

    def advance(self, session: Session) -> None:
        """Do one update and log it with `session.log`."""

    def conclude(self, session: Session) -> None:
        """Finish; called once, after the last update and its checkpoint."""

    def state_dict(self) -> dict[str, Any]:
        """Everything that an exact resume needs, as tensors and plain data."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from what `state_dict` returned."""

    def write_checkpoint(self, path: Path, state: Mapping[str, Any], training: Any) -> None:
        """Write a checkpoint of `state` and `training`, which a resume needs; in one process."""


class Session(Generic[Config]):
    """One training run; see the module.

    Args:
        command: the training command.
        config: its settings.
        overrides: overrides of the command line. A resume takes only these from `config`.

    Attributes:
        config: the settings in use; for a resumed run, those of the run directory.
        run: the run directory, set by `open`.
        fabric: device, precision and process group, started.
        threads: number of torch threads in this process.
        resumed: whether this continues an existing run.
    """

    run: Run

    def __init__(self, command: Command, config: Config, overrides: Iterable[str]) -> None:
        self.command, self.overrides = command, list(overrides)
        self.resumed = config.resume is not None
        if self.resumed:
            self.run = Run.open(config.resume)
            before = self.run.config
            config = resumed(self.run, config, self.overrides, command.resumable)
            check_growth(command.budget, before, getattr(config, command.budget))
        self.config = config
        self.threads = set_threads(config.threads, config.processes)
        self.fabric = make_fabric(config.device, config.precision, config.processes, command.script)
        seed_everything(config.seed)
        self.display = Display(
            self.budget, command.unit, command.summary, config.display, self.is_main
        )
        self._mirror: Mirror = Nothing()
        self._began, self._spent_before = time.perf_counter(), 0.0
        self._rows = 0
        self._saved = 0
        self._stopping = False

    @property
    def is_main(self) -> bool:
        """Whether this is the process that writes files."""
        return self.fabric.is_global_zero

    @property
    def budget(self) -> int:
        """The training budget, in the command's unit."""
        return getattr(self.config, self.command.budget)

    @property
    def last_checkpoint(self) -> Path:
        """The checkpoint from which a resume continues."""
        return self.run.checkpoints / "last.pt"

    @property
    def seconds(self) -> float:
        """Wall-clock time of the run over all resumes, without work that a kill has lost."""
        return self._spent_before + time.perf_counter() - self._began

    def say(self, text: str) -> None:
        """Print a line for people."""
        self.display.say(text)

    @contextmanager
    def open(
        self, resolved: Mapping[str, Any], labels: Sequence[str], manifest: Mapping[str, Any]
    ) -> Iterator[Session[Config]]:
        """Lock the run directory while the body runs; make it first if the run is new.

        Args:
            resolved: the whole configuration as plain data.
            labels: parts of the name of a new run, after the time.
            manifest: extra entries for the manifest of a new run.
        """
        if not self.resumed:
            self.run = self._create(resolved, labels, manifest)
        with ExitStack() as stack:
            if self.is_main:
                stack.enter_context(self.run.lock())
            settings = dataclasses.asdict(self.config)
            logger = self.config.logger if self.is_main else LoggerConfig()
            mirror = open_mirror(logger, self.run.path, self.run.path.name, settings)
            self._mirror = stack.enter_context(closing(mirror))
            self.say(f"run {self.run.path}")
            if mirror.place:
                self.say(mirror.place)
            self.say(
                f"device {self.fabric.device}, {self.config.precision}, {self.threads} threads"
            )
            self._began = time.perf_counter()
            try:
                yield self
            except KeyboardInterrupt:
                self.say(f"go on with  python {self.command.script} resume={self.run.path}")
                raise

    def restore(self, learner: Learner, read: Callable[[Path], Mapping[str, Any]]) -> None:
        """If the run is resumed, continue from last.pt, or from the start if none was ever written.

        Args:
            read: reads and checks a checkpoint file.

        Raises:
            UserError: last.pt is damaged, of another configuration, or lost.
        """
        if not self.resumed:
            return
        path = self.last_checkpoint
        if path.exists():
            content = read(path)
            if "training" not in content:
                raise UserError(f"{path} holds weights only and cannot be resumed")
            try:
                learner.load_state_dict(content["training"]["learner"])
                self._load_state_dict(content["training"]["session"])
            except UserError as error:
                raise UserError(f"{path}: {error}") from None
            except (LookupError, RuntimeError, ValueError, TypeError, AttributeError) as error:
                raise UserError(
                    f"{path} cannot be resumed, it is damaged or of another configuration or "
                    f"version: {error!r}"
                ) from error
        else:
            self._refuse_a_lost_checkpoint()
        finished = learner.spent >= self.budget
        if self.is_main:
            self.run.truncate_metrics(self._rows)
            self.run.note_resume(dataclasses.asdict(self.config))
            if not finished:
                self.run.discard(*self.command.results)
        spent, unit = f"{learner.spent:,}", self.command.unit
        self.say(f"resuming after {spent} {unit}")
        if finished:
            self.say(
                f"training is finished after {spent} {unit}; the steps after training run again. A "
                f"larger {self.command.budget}= continues training"
            )

    def fit(self, learner: Learner) -> None:
        """Train until the budget is spent, and save checkpoints on the way and at the end.

        The first Ctrl-C ends training after the current update, with a checkpoint. Several
        processes could stop at different updates, so there it ends them at once.
        """
        with self.display, self._stop_on_interrupt(), self._profiler() as profiler:
            while learner.spent < self.budget:
                learner.advance(self)
                profiler.step()
                every, last = self.config.checkpoint_every, learner.spent >= self.budget
                due = every and learner.spent - self._saved >= every
                if due or last or self._stopping:
                    self.save(learner)
                if self._stopping and not last:
                    self.say(f"stopped after {learner.spent:,} {self.command.unit}")
                    raise KeyboardInterrupt
            learner.conclude(self)

    def save(self, learner: Learner) -> None:
        """Write last.pt. All processes must call it."""
        self._saved = learner.spent
        state = learner.state_dict()
        if self.is_main:
            training = {"learner": state, "session": self._state_dict()}
            learner.write_checkpoint(self.last_checkpoint, state, training)

    def log(self, row: Mapping[str, Any], step: int, show: bool = True) -> None:
        """Write a row of metrics at `step` (in units of the budget); `show` displays it too."""
        if not self.is_main:
            return
        self.run.log(row)
        self._rows += 1
        self._mirror.log(row, step)
        if show:
            self.display.show(row)

    def finish(self, results: Mapping[str, Any]) -> dict[str, Any]:
        """Write result.json; returns the results, for the last line that the command prints."""
        results = {"run": str(self.run.path), **results}
        if self.is_main:
            self.run.write_json("result.json", results)
        return results

    def _state_dict(self) -> dict[str, Any]:
        return {"rows": self._rows, "seconds": self.seconds, "saved": self._saved}

    def _load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._rows, self._saved = state["rows"], state["saved"]
        self._spent_before = state["seconds"]

    def _create(
        self, resolved: Mapping[str, Any], labels: Sequence[str], manifest: Mapping[str, Any]
    ) -> Run:
        path = None
        if self.is_main:
            config = self.config
            check_logger(config.logger)
            name = run_name(config.name, self.command.room, *labels, f"s{config.seed}")
            extra = {**manifest, "device": str(self.fabric.device)}
            extra["overrides"] = [text.lstrip("+") for text in self.overrides]
            seeds = {"root": config.seed}
            run = Run.create(config.run_root, name, resolved, seeds=seeds, extra=extra)
            path = str(run.path)
        return Run(Path(self.fabric.broadcast(path)))

    def _refuse_a_lost_checkpoint(self) -> None:
        """Raise `UserError` if the run once had a last.pt that is gone.

        A fresh start would delete the rows that it logged.
        """
        every, unit = self.config.checkpoint_every, self.command.unit
        counts = [row[unit] for row in self.run.metrics() if unit in row]
        reached = max(counts, default=0)
        due = min((count for count in counts if every and count >= every), default=reached)
        results = [name for name in self.command.results if (self.run.path / name).exists()]
        if reached > due or reached >= self.budget or results:
            raise UserError(
                f"{self.last_checkpoint} is missing, though the run has trained for {reached:,} "
                f"{unit}. Nothing was changed: put the file back, or begin a new run without "
                "resume="
            )

    @contextmanager
    def _stop_on_interrupt(self) -> Iterator[None]:
        """Let the first Ctrl-C end the loop at the next update."""
        before = signal.getsignal(signal.SIGINT)
        alone = self.fabric.world_size == 1
        here = threading.current_thread() is threading.main_thread()
        if before is not signal.default_int_handler or not (alone and here):
            yield
            return

        def stop(number: int, frame: Any) -> None:
            if self._stopping:
                raise KeyboardInterrupt
            self._stopping = True
            self.say("stopping after this update, with a checkpoint; Ctrl-C again stops at once")

        signal.signal(signal.SIGINT, stop)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    @contextmanager
    def _profiler(self) -> Iterator[Any]:
        """Trace the first `profile` updates, after one that warms up, into profile.json of the run.

        chrome://tracing and perfetto.dev show that file.
        """
        if not self.config.profile or not self.is_main:
            yield _NoProfiler()
            return
        path = self.run.path / "profile.json"
        with torch.profiler.profile(
            schedule=torch.profiler.schedule(
                wait=0, warmup=1, active=self.config.profile, repeat=1
            ),
            on_trace_ready=lambda trace: trace.export_chrome_trace(str(path)),
        ) as profiler:
            yield profiler


class _NoProfiler:
    def step(self) -> None:
        pass
