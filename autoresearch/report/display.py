"""A campaign at a glance, in the terminal: a row per candidate, and what the budgets have left."""

from __future__ import annotations

import time

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from autoresearch.config import CampaignConfig
from autoresearch.loop.state import Candidate, State
from autoresearch.report import words
from autoresearch.types.words import gate_in_words

COLUMNS = ("candidate", "change", "last gate", "verdict", "gain", "evidence", "prediction")
WIDE = 1_000
"""Columns of a file or pipe, which has no width to fit into."""


def console() -> Console:
    """A console on which no cell is cut."""
    screen = Console()
    if not screen.is_terminal:
        screen.width = WIDE
    return screen


def overview(config: CampaignConfig, state: State) -> Group:
    """Table, budgets and open runs, for `rich` to print or to keep on the screen."""
    grid = Table(title=f"campaign {config.name}", title_justify="left")
    for name in COLUMNS:
        grid.add_column(name, overflow="fold")
    for generation in state.generations:
        grid.add_section()
        refused = f"{len(generation.refused)} refused" if generation.refused else ""
        number = Text(f"generation {generation.number}", style="bold")
        grid.add_row(number, f"of {generation.parent}", refused)
        for candidate in generation.candidates.values():
            grid.add_row(*row(candidate))
    lines = [
        f"gain: of {config.gates.primary.name} over the parent's, with its 95% interval; evidence: "
        f"an e-value of {config.gates.win:g} shows a better checkpoint, a small p-value a better "
        "configuration. All words: docs/glossary.md",
        budget_line(config, state),
        *final_lines(state),
        *running_lines(state),
    ]
    return Group(grid, *(Text(line) for line in lines))


def row(candidate: Candidate) -> list[str]:
    """The cells of a candidate, in the order of COLUMNS."""
    return [
        candidate.id,
        candidate.change,
        gate_in_words(candidate.last_gate),
        words.verdict(candidate),
        words.gain(candidate),
        words.evidence(candidate),
        words.prediction(candidate),
    ]


def budget_line(config: CampaignConfig, state: State) -> str:
    """What was spent, and of how much."""
    budgets = config.budgets
    parts = [
        f"generations {len(state.generations)} of {budgets.generations}",
        f"runs {len(state.runs)}",
        f"ticks {state.ticks:,}" + (f" of {budgets.ticks:,}" if budgets.ticks else ""),
        f"minutes of processes {state.seconds / 60:.1f}"
        + (f" of {budgets.seconds / 60:.1f}" if budgets.seconds else ""),
    ]
    if state.tokens or budgets.tokens:
        parts.append(
            f"tokens {state.tokens:,}" + (f" of {budgets.tokens:,}" if budgets.tokens else "")
        )
    if state.resumes:
        parts.append(words.resumed(state.resumes))
    if state.ended:
        parts.append(f"ended: {state.ended}")
    return "; ".join(parts)


def final_lines(state: State) -> list[str]:
    """What the sealed units said, if they were opened."""
    if state.final is None:
        return ["the sealed units are open"] if state.opened else []
    return [words.final(state.opened["candidate"], state.final)]


def running_lines(state: State) -> list[str]:
    """The runs that have not ended yet, and for how long they have run."""
    now = [
        f"{run.id} {run.task.kind} {run.task.candidate} ({time.time() - run.last.began:.0f} s)"
        for run in state.runs.values()
        if run.open
    ]
    return [f"now: {', '.join(now)}"] if now else []
