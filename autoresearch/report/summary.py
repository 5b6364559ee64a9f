"""A campaign as data for documents: everything comes from its ledger."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from autoresearch.config import CampaignConfig
from autoresearch.loop.campaign import LEDGER, recorded_config
from autoresearch.loop.ledger import Ledger, Row
from autoresearch.loop.state import INTERRUPTED, LOST, Candidate, State


@dataclass(frozen=True)
class Cost:
    """What a campaign took.

    Attributes:
        runs, attempts: tasks, and processes started for them.
        lost, failed: attempts that ended with their process or node, and by their own fault.
        ticks, tokens: of trainers and of language models.
        minutes: of the clock, over all lives of the campaign.
        candidates_per_hour: of that clock.
        outside_training: share of the processes' time there was (jobs times the clock) in which
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
        config: as it was last run with.
        command: that began it.
        code: hash of the source that it ran.
        began: date of its first row.
        state: after its last one.
        cost: of all of it.
    """

    config: CampaignConfig
    command: str
    code: str
    began: str
    state: State
    cost: Cost

    @property
    def candidates(self) -> list[tuple[int, str, Candidate]]:
        """(generation, parent, candidate), in order."""
        return [(g.number, g.parent, c) for g in self.state.generations
                for c in g.candidates.values()]  # fmt: skip


def summarize(directory: Path) -> Summary:
    """The campaign in `directory`; `UserError` where there is none, or its ledger is damaged."""
    config, rows = recorded_config(directory), Ledger.reading(directory / LEDGER).rows
    state = State.of(rows)
    spent = cost(rows, state, config)
    began = state.campaign
    return Summary(config, began["command"], began["code"], rows[0].time[:10], state, spent)


def cost(rows: Sequence[Row], state: State, config: CampaignConfig) -> Cost:
    """What the campaign whose ledger has `rows` took."""
    seconds = _clock(rows)
    attempts = [(run, attempt) for run in state.runs.values() for attempt in run.attempts]
    failures = [attempt.reason for _, attempt in attempts if attempt.reason]
    lost = failures.count(LOST) + failures.count(INTERRUPTED)
    training = sum(a.seconds for run, a in attempts if run.task["kind"] == "train")
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
    """Seconds from the first to the last row of each life; between two lives nothing ran."""
    lives: list[list[datetime]] = []
    for row in rows:
        if row.kind in ("campaign", "resumed"):
            lives.append([])
        lives[-1].append(datetime.fromisoformat(row.time))
    # A clock that was set back gives no negative time.
    return sum(max((life[-1] - life[0]).total_seconds(), 0.0) for life in lives)
