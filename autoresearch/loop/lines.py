"""What a running campaign prints about its decisions, one line each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from autoresearch.config import CampaignConfig
from autoresearch.loop.ledger import RowKind
from autoresearch.loop.state import State
from autoresearch.types.task import TrainTask
from autoresearch.types.words import gate_in_words, verdict_in_words


def of(kind: RowKind, data: Mapping[str, Any], state: State, config: CampaignConfig) -> str:
    """The line about a decision; empty for one that needs none."""
    match kind:
        case RowKind.GENERATION:
            minutes = minutes_per_run(state, config)
            cost = f", {2 * data['seeds']} runs" + (f" of {minutes:.1f} minutes" if minutes else "")
            return (
                f"generation {data['number']}: parent {data['parent']}; a promotion costs "
                f"{data['seeds']} training seeds (level {data['alpha']:.3g}){cost}"
            )
        case RowKind.JUDGED:
            verdict = state.candidates[data["candidate"]].judged[data["gate"]]
            reasons = f"; {'; '.join(verdict.reasons)}" if verdict.reasons else ""
            gate, word = gate_in_words(data["gate"]), verdict_in_words(verdict.word)
            return f"{data['candidate']} {gate}: {word}{reasons}"
        case RowKind.PROMOTED:
            return f"{data['candidate']} is promoted"
        case RowKind.OPENED:
            last = data["first"] + data["units"] - 1
            return (
                f"sealed units {data['first']}-{last} are opened, for {data['candidate']} against "
                f"the base on {data['seeds']} fresh training seeds"
            )
        case RowKind.FINAL:
            reasons = "; ".join(data["reasons"]) or f"p = {data['p']:.3g}"
            return f"final: {'held up' if data['passed'] else 'did not hold up'}; {reasons}"
    return ""


def minutes_per_run(state: State, config: CampaignConfig) -> float | None:
    """Mean minutes of a training run on the whole budget; None before the first has finished."""
    seconds = [
        sum(attempt.seconds for attempt in run.attempts)
        for run in state.runs.values()
        if run.finished and isinstance(run.task, TrainTask) and run.task.budget == config.budget
    ]
    return float(np.mean(seconds)) / 60 if seconds else None
