"""A campaign at a glance: one row per candidate, and what is left of the budgets."""

from __future__ import annotations

from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from autoresearch.config import CampaignConfig
from autoresearch.loop.state import Candidate, State

COLUMNS = ("candidate", "change", "stage", "gain", "evidence", "verdict", "mechanism")


def overview(config: CampaignConfig, state: State) -> Group:
    """Table, budget and what runs now, for `rich` to print or to keep on the screen."""
    grid = Table(title=f"campaign {config.name}", title_justify="left")
    for name in COLUMNS:
        grid.add_column(name, justify="right" if name in ("gain", "evidence") else "left")
    for generation in state.generations:
        grid.add_section()
        told = f"generation {generation.number}, parent {generation.parent}"
        refused = f"{len(generation.refused)} refused" if generation.refused else ""
        grid.add_row(Text(told, style="bold"), refused)
        for candidate in generation.candidates.values():
            grid.add_row(*row(candidate))
    lines = [budget_line(config, state), *final_line(state), *running_line(state)]
    return Group(grid, *(Text(line) for line in lines))


def row(candidate: Candidate) -> list[str]:
    """The cells of a candidate, in the order of COLUMNS."""
    gain = evidence = ""
    for name in ("G4", "G3"):
        told = candidate.judged.get(name, {})
        if not gain and told.get("gain"):
            gain = interval(told["gain"])
        if not evidence:
            evidence = _evidence(told)
    stage = candidate.last_gate or "proposed"
    verdict = "promoted" if candidate.promoted else candidate.verdict
    mechanism = candidate.judged.get("G5", {}).get("verdict", "")
    return [candidate.id, candidate.change, stage, gain, evidence, verdict, mechanism]


def interval(estimate: dict[str, Any]) -> str:
    """`+0.031 [-0.004, 0.066]`."""
    if estimate["low"] is None:
        return f"{estimate['mean']:+.3g}"
    return f"{estimate['mean']:+.3g} [{estimate['low']:.3g}, {estimate['high']:.3g}]"


def budget_line(config: CampaignConfig, state: State) -> str:
    """What was spent, and of how much."""
    budgets = config.budgets
    parts = [
        f"generations {len(state.generations)} of {budgets.generations}",
        f"runs {len(state.runs)}",
        f"ticks {state.ticks:,}" + (f" of {budgets.ticks:,}" if budgets.ticks else ""),
        f"minutes {state.seconds / 60:.1f}"
        + (f" of {budgets.seconds / 60:.1f}" if budgets.seconds else ""),
    ]
    if state.tokens or budgets.tokens:
        parts.append(
            f"tokens {state.tokens:,}" + (f" of {budgets.tokens:,}" if budgets.tokens else "")
        )
    if state.resumes:
        parts.append(f"taken up again {state.resumes} times")
    if state.ended:
        parts.append(f"ended: {state.ended}")
    return "; ".join(parts)


def final_line(state: State) -> list[str]:
    """What the sealed units said, if they were opened."""
    if state.final is None:
        return ["sealed units are open"] if state.opened else []
    told = state.final
    verdict = "held up" if told["passed"] else "did not hold up"
    gain = f", gain {interval(told['gain'])}" if "gain" in told else ""
    reasons = "; ".join(told["reasons"])
    return [f"final: {told['candidate']} {verdict}{gain}" + (f" ({reasons})" if reasons else "")]


def running_line(state: State) -> list[str]:
    """The runs whose end is not known."""
    now = [f"{r.id} {r.task['kind']} {r.task['candidate']}" for r in state.runs.values() if r.open]
    return [f"now: {', '.join(now)}"] if now else []


def _evidence(told: dict[str, Any]) -> str:
    if "p" in told:
        return f"p={told['p']:.3g}"
    if "e_value" in told:
        return f"e={told['e_value']:.3g}"
    return ""
