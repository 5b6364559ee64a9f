"""A campaign as data for documents: all of it comes from its ledger and artifacts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from autoresearch.config import CampaignConfig
from autoresearch.execute.artifacts import ArtifactStore
from autoresearch.loop.ledger import LEDGER, Ledger, Row
from autoresearch.loop.recorded import recorded_config
from autoresearch.loop.state import Candidate, State
from autoresearch.report.notes import first_screen, notes
from autoresearch.types.run import Failure
from autoresearch.types.task import TaskKind


@dataclass(frozen=True)
class Cost:
    """What a campaign took.

    Attributes:
        runs, attempts: tasks, and processes started for them.
        lost, failed: attempts that ended with their process or node, and by their own fault.
        ticks, tokens: spent by trainers and by language models.
        minutes: of the clock while the campaign ran; a pause between two processes is not counted.
        candidates_per_hour: of that clock.
        outside_training: share of the available process time (jobs times the clock) in which
            nothing was trained.
    """

    runs: int
    attempts: int
    lost: int
    failed: int
    ticks: int
    tokens: int
    minutes: float
    candidates_per_hour: float
    outside_training: float


@dataclass(frozen=True)
class Summary:
    """A campaign.

    Attributes:
        config: the one that it was last run with.
        command: that began it.
        code: hash of the source that it ran.
        began: date of its first row.
        state: after its last row.
        cost: of all of it.
        notes: sentences about results that need an explanation, see `notes.py`.
    """

    config: CampaignConfig
    command: str
    code: str
    began: str
    state: State
    cost: Cost
    notes: list[str]

    @property
    def candidates(self) -> list[tuple[int, str, Candidate]]:
        """(generation, parent, candidate), in order."""
        return [(g.number, g.parent, c) for g in self.state.generations
                for c in g.candidates.values()]  # fmt: skip


def summarize(directory: Path) -> Summary:
    """The campaign in `directory`; `UserError` where there is none, or its ledger is damaged."""
    config, rows = recorded_config(directory), Ledger.reading(directory / LEDGER).rows
    state = State.of(rows)
    store = ArtifactStore(directory / "artifacts")
    screened = {
        name: store.load(artifact).rows
        for generation in state.generations
        for name, artifact in first_screen(generation, state, config.budget).items()
    }
    return Summary(
        config=config,
        command=state.campaign["command"],
        code=state.campaign["code"],
        began=rows[0].time[:10],
        state=state,
        cost=cost(rows, state, config),
        notes=notes(state, screened),
    )


def cost(rows: Sequence[Row], state: State, config: CampaignConfig) -> Cost:
    """What the campaign whose ledger has `rows` took."""
    seconds = _clock(rows)
    attempts = [(run, attempt) for run in state.runs.values() for attempt in run.attempts]
    failures = [attempt.failure for _, attempt in attempts if attempt.failure]
    lost = failures.count(Failure.LOST) + failures.count(Failure.INTERRUPTED)
    training = sum(a.seconds for run, a in attempts if run.task.kind is TaskKind.TRAIN)
    hours = seconds / 3600
    return Cost(
        runs=len(state.runs),
        attempts=len(attempts),
        lost=lost,
        failed=len(failures) - lost,
        ticks=state.ticks,
        tokens=state.tokens,
        minutes=seconds / 60,
        candidates_per_hour=len(state.candidates) / hours if hours else 0.0,
        outside_training=max(0.0, 1 - training / (seconds * config.executor.jobs))
        if seconds
        else 0.0,
    )


def _clock(rows: Sequence[Row]) -> float:
    """Seconds from the first to the last row of each process that ran the campaign, summed."""
    processes: list[list[datetime]] = []
    for row in rows:
        if row.kind in ("campaign", "resumed"):
            processes.append([])
        processes[-1].append(datetime.fromisoformat(row.time))
    # A clock that was set back must not give a negative time.
    return sum(max((times[-1] - times[0]).total_seconds(), 0.0) for times in processes)
