"""Turns a task into a command to start, and says where its process works and what it left.

Each run has a directory `runs/<id>` and a log `logs/<id>.log` below the campaign's directory.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from autoresearch.config import CampaignConfig
from autoresearch.config.commands import FIELD
from autoresearch.execute.processes import RUNS, Job
from autoresearch.execute.results import read_result, ticks_so_far
from autoresearch.types.artifact import Artifact
from autoresearch.types.overrides import as_arguments
from autoresearch.types.run import RunState
from autoresearch.types.task import JudgeTask, TrainTask

TAIL_BYTES = 1 << 16
"""Bytes at the end of a log in which its last line is looked for."""


class Harness:
    """Knows where runs lie and how they are started.

    Args:
        config: of the campaign.
        directory: of the campaign.
    """

    def __init__(self, config: CampaignConfig, directory: Path) -> None:
        self.config, self.directory = config, directory
        self.runs = directory / "runs"

    def run_directory(self, run: RunState) -> Path:
        """Where the process of a run works."""
        return self.runs / run.id

    def log(self, run: RunState) -> Path:
        """The file that all attempts of a run print to."""
        return self.directory / "logs" / f"{run.id}.log"

    def job(self, run: RunState, runs: Mapping[str, RunState]) -> Job:
        """The job that starts a run, or goes on with the run directory that a killed attempt left.

        Removes an old run directory that cannot be gone on with. `runs` has every run by key.
        """
        task = run.task
        if isinstance(task, JudgeTask):
            words, needs = self._judge(task, run.id, runs[task.trained.key].id)
        else:
            words, needs = self._train(task, run)
        return Job(
            token=run.last.token,
            words=words,
            runs=self.runs,
            needs=needs,
            makes=run.id,
            log=self.log(run),
            timeout=self.config.budgets.timeout,
        )

    def collect(self, run: RunState) -> Artifact:
        """What a run that ended well measured; see `results.read_result`."""
        return read_result(run.task, self.run_directory(run), self.config)

    def ticks(self, run: RunState) -> int:
        """What a training run has spent of its budget so far; 0 for a judgement."""
        if isinstance(run.task, JudgeTask):
            return 0
        return ticks_so_far(self.run_directory(run), self.config.commands.ticks)

    def seconds(self, run: RunState) -> float:
        """How long the last attempt lived, estimated after the campaign itself was killed.

        From its claim to the last time that it wrote to its log or a metrics file; 0 if it never
        wrote.
        """
        began = run.last.began
        written = [self.log(run), *self.run_directory(run).glob("*.jsonl")]
        ended = max((path.stat().st_mtime for path in written if path.is_file()), default=began)
        return min(max(ended - began, 0.0), self.config.budgets.timeout)

    def complaint(self, run: RunState) -> str:
        """The last line that the processes of a run printed."""
        try:
            with open(self.log(run), "rb") as file:
                file.seek(max(file.seek(0, os.SEEK_END) - TAIL_BYTES, 0))
                text = file.read().decode(errors="replace")
        except FileNotFoundError:
            return "it printed nothing"
        lines = text.strip().splitlines()
        return lines[-1][:300] if lines else "it printed nothing"

    def _train(self, task: TrainTask, run: RunState) -> tuple[list[str], tuple[str, ...]]:
        """Words of the training command, and the run directories that it reads."""
        commands, directory = self.config.commands, self.run_directory(run)
        if commands.resume and (directory / "manifest.json").is_file():
            return _filled(commands.resume, run=f"{RUNS}/{run.id}"), (run.id,)
        shutil.rmtree(directory, ignore_errors=True)
        words = _filled(commands.train, root=RUNS, name=run.id, seed=task.seed, budget=task.budget)
        return words + as_arguments(task.overrides), ()

    def _judge(self, task: JudgeTask, name: str, trained: str) -> tuple[list[str], tuple[str, ...]]:
        """The same for a judgement of the run directory `trained`."""
        shutil.rmtree(self.runs / name, ignore_errors=True)
        commands, first, count = self.config.commands, task.first, task.count
        words = _filled(
            commands.judge + (commands.sealed if task.sealed else ()),
            run=f"{RUNS}/{trained}", root=RUNS, name=name, into=f"{RUNS}/{name}",
            first=first, count=count, units=f"{first}-{first + count - 1}",
        )  # fmt: skip
        return words, (trained,)


def _filled(words: Sequence[str], **values: Any) -> list[str]:
    """`words` with every {field} replaced by its value."""
    return [FIELD.sub(lambda match: str(values[match[1]]), word) for word in words]
