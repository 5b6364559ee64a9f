"""Finds results that need an explanation: cars that stand still, candidates with equal gains."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from autoresearch.loop.state import Generation, State
from autoresearch.report.words import count, gain
from autoresearch.types.artifact import Rows
from autoresearch.types.task import JudgeTask

SPEED = "mean_speed"
STILL = 0.01
"""Units per second below which a car stands still."""


def notes(state: State, rows: Mapping[str, Rows]) -> list[str]:
    """A sentence for every car that stands still, and for candidates that have one gain.

    Args:
        state: of the campaign.
        rows: by candidate, what was measured on the first units of its screen.
    """
    sentences = []
    for generation in state.generations:
        groups: dict[str, list[str]] = {}
        for name, candidate in generation.candidates.items():
            if rows.get(name):
                groups.setdefault(gain(candidate), []).append(name)
        for names in groups.values():
            if sentence := _sentence(names, rows):
                sentences.append(sentence)
    return sentences


def first_screen(generation: Generation, state: State, budget: int) -> dict[str, str]:
    """Hash of the artifact of the first batch of each candidate's screen, by candidate.

    `budget` is that of a full training run.
    """
    hashes: dict[str, str] = {}
    for run in state.runs.values():
        name = run.task.candidate
        if not isinstance(run.task, JudgeTask) or run.artifact is None:
            continue
        if run.task.trained.budget != budget:  # a rung's
            continue
        candidate = generation.candidates.get(name)
        if candidate is not None and candidate.screen is not None:
            hashes.setdefault(name, run.artifact)
    return hashes


def _sentence(names: Sequence[str], rows: Mapping[str, Rows]) -> str:
    several = len(names) > 1
    who = ", ".join(names[:-1]) + " and " + names[-1] if several else names[0]
    units = count(len(rows[names[0]]), "unit")
    if all(_still(rows[name]) for name in names):
        cars, verb = ("the cars", "stand") if several else ("the car", "stands")
        equal = ", which is why their gains are equal to the digit" if several else ""
        return (
            f"{cars.capitalize()} of {who} {verb} still on all of the first {units} "
            f"({SPEED} 0): the gain is what the parent reached, with a minus sign{equal}."
        )
    if not several:
        return ""
    if all(rows[name] == rows[names[0]] for name in names):
        return f"{who} measured exactly the same on each of the first {units}."
    return f"{who} have the same gain to the digits shown; their measurements differ."


def _still(rows: Rows) -> bool:
    speeds = [row.get(SPEED) for row in rows.values()]
    return all(speed is not None and abs(speed) < STILL for speed in speeds)
