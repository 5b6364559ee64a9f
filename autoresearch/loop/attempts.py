"""Runs tasks, and writes into the ledger how every attempt at them went."""

from __future__ import annotations

import secrets
import signal
from collections.abc import Callable, Mapping, Sequence

from autoresearch.config import CampaignConfig
from autoresearch.execute.artifacts import ArtifactStore
from autoresearch.execute.harness import Harness
from autoresearch.execute.processes import Ended, Executor, end_attempt
from autoresearch.execute.results import Unusable
from autoresearch.loop.ledger import RowKind
from autoresearch.loop.state import State
from autoresearch.types.artifact import Artifact, ruler
from autoresearch.types.run import Failure, RunState
from autoresearch.types.task import Task, TaskKind, TrainTask
from common.errors import EXIT_USER_ERROR, UserError

FROM_OUTSIDE = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGKILL)
"""Signals that say nothing about the command that died of them."""

OTHER_RULER = {
    TaskKind.TRAIN: "trained by other code than the runs before it: they would not compare; "
    "restore the code and resume",
    TaskKind.JUDGE: "judged by another evaluator than the runs before it: numbers of two rulers do "
    "not compare; restore the evaluator and resume",
}


class Attempts:
    """The attempts of one campaign.

    Args:
        config: of the campaign.
        state: kept up to date by `write`.
        write: adds a row to the ledger and to the state.
        harness, store, executor: how tasks are started, where artifacts are kept, what runs tasks.
        say: prints a line.
        watch: is given the state while runs are waited for.
    """

    def __init__(
        self,
        config: CampaignConfig,
        state: State,
        write: Callable[..., object],
        harness: Harness,
        store: ArtifactStore,
        executor: Executor,
        say: Callable[[str], None],
        watch: Callable[[State], None],
    ) -> None:
        self.config, self.state, self.write = config, state, write
        self.harness, self.store, self.executor = harness, store, executor
        self.say, self.watch = say, watch

    def perform(self, tasks: Sequence[Task], limited: bool = True) -> str | None:
        """Run tasks, `executor.jobs` at a time.

        Returns why the campaign has to end, if it is `limited` by its budgets and one is spent.
        """
        waiting, running = list(tasks), {}
        while waiting or running:
            while waiting and len(running) < self.config.executor.jobs:
                task = waiting.pop(0)
                if limited and (reason := self.over_budget(task, running)):
                    waiting.clear()
                    if not running:
                        return reason
                    break
                run = self._claim(task)
                pid = self.executor.start(self.harness.job(run, self.state.runs))
                data = {"run": run.id, "attempt": run.last.number, "pid": pid}
                self.write(RowKind.RUNNING, data)
                running[run.last.token] = run
            for ended in self.executor.wait(lambda: self.watch(self.state)):
                self._ended(running.pop(ended.token), ended)
        return None

    def close_open(self) -> None:
        """Decide what became of attempts that were open when the process before this one died.

        Their processes are ended. An attempt whose files are complete has finished; any other was
        interrupted.
        """
        for run in [run for run in self.state.runs.values() if run.open]:
            end_attempt(run.last.token, self.config.budgets.grace)
            seconds = self.harness.seconds(run)
            try:
                artifact = self.harness.collect(run)
            except Unusable:
                detail = "its process ended with the campaign's"
                self._failed(run, Failure.INTERRUPTED, detail, seconds)
            else:
                self._finished(run, artifact, seconds)

    def over_budget(self, task: Task, running: Mapping[str, RunState]) -> str | None:
        """Why the budgets do not allow another run, or None if they do.

        `running` has the runs whose cost is not known yet.
        """
        budgets = self.config.budgets
        if budgets.seconds is not None and self.state.seconds >= budgets.seconds:
            return f"budget: {budgets.seconds:,g} seconds of processes are spent"
        if budgets.ticks is not None and isinstance(task, TrainTask):
            reserved = sum(map(_budget, running.values()))
            if self.state.ticks + reserved + task.budget > budgets.ticks:
                return f"budget: the next run would exceed {budgets.ticks:,} ticks"
        return None

    def _claim(self, task: Task) -> RunState:
        known = self.state.runs.get(task.key)
        data = {
            "run": known.id if known else f"run_{len(self.state.runs) + 1:03d}",
            "key": task.key,
            "attempt": len(known.attempts) + 1 if known else 1,
            "token": secrets.token_hex(8),
            "task": task.plain(),
        }
        self.write(RowKind.CLAIMED, data)
        return self.state.runs[task.key]

    def _ended(self, run: RunState, ended: Ended) -> None:
        if ended.lost:
            self._failed(run, Failure.LOST, ended.lost, ended.seconds)
        elif ended.timed_out:
            detail = f"it took longer than {self.config.budgets.timeout:g} s"
            self._failed(run, Failure.TIMEOUT, detail, ended.seconds)
        elif ended.code == EXIT_USER_ERROR:
            self._failed(run, Failure.REFUSED, self.harness.complaint(run), ended.seconds)
        elif -ended.code in FROM_OUTSIDE:
            detail = f"signal {-ended.code} from outside"
            self._failed(run, Failure.LOST, detail, ended.seconds)
        elif ended.code:
            self._failed(run, Failure.CRASH, self.harness.complaint(run), ended.seconds)
        else:
            try:
                artifact = self.harness.collect(run)
            except Unusable as error:
                self._failed(run, Failure.UNUSABLE, str(error)[:500], ended.seconds)
            else:
                self._finished(run, artifact, ended.seconds)

    def _finished(self, run: RunState, artifact: Artifact, seconds: float) -> None:
        self._check_ruler(run, artifact)
        spent = artifact.ticks if artifact.kind is TaskKind.TRAIN else 0
        data = {"run": run.id, "attempt": run.last.number, "seconds": seconds}
        data["ticks"] = self._newly_spent(run, spent)
        self.write(RowKind.FINISHED, data | {"artifact": self.store.keep(artifact)})

    def _failed(self, run: RunState, failure: Failure, detail: str, seconds: float) -> None:
        if failure in (Failure.LOST, Failure.INTERRUPTED) and self.executor.forgets:
            ticks = _budget(run)  # nobody knows how far it came, so it counts in full
        else:
            ticks = self._newly_spent(run, self.harness.ticks(run))
        data = {"run": run.id, "attempt": run.last.number, "reason": failure, "detail": detail}
        self.write(RowKind.FAILED, data | {"seconds": seconds, "ticks": ticks})
        self.say(f"{run.id}: {failure}: {detail}")

    def _newly_spent(self, run: RunState, total: int) -> int:
        """What the last attempt added to the `total` ticks in its run directory."""
        gone = (Failure.LOST, Failure.INTERRUPTED) if self.executor.forgets else ()
        kept = [attempt for attempt in run.attempts if attempt.failure not in gone]
        return max(total - sum(attempt.ticks for attempt in kept), 0)

    def _check_ruler(self, run: RunState, artifact: Artifact) -> None:
        """Raise `UserError` if the run was made or judged by other code than the runs before it."""
        hashes = {
            ruler(self.store.load(other.artifact))
            for other in self.state.runs.values()
            if other.finished and other.task.kind is artifact.kind
        }
        if hashes - {ruler(artifact)}:
            raise UserError(f"{run.id} was {OTHER_RULER[artifact.kind]}")


def _budget(run: RunState) -> int:
    """What a run may spend of a campaign's ticks."""
    return run.task.budget if isinstance(run.task, TrainTask) else 0
