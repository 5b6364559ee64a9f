"""The tables of a campaign's section and page, as rows of text."""

from __future__ import annotations

from autoresearch.loop.state import Candidate
from autoresearch.report import words
from autoresearch.report.summary import Summary
from common import markdown

GATES = ("generation", "candidate", "change", "ended", "gain", "evidence", "because")
HYPOTHESES = ("candidate", "hypothesis", "predicted", "measured", "verdict")
COST = (
    ("runs", "runs"),
    ("attempts", "processes started"),
    ("lost", "of them lost with their process or node"),
    ("failed", "of them failed"),
    ("ticks", "engine ticks (or updates) trained"),
    ("tokens", "tokens of a language model"),
    ("minutes", "minutes of the clock"),
    ("candidates_per_hour", "candidates per hour"),
    ("outside_training", "share of the processes' time outside training"),
)


def gate_rows(summary: Summary) -> list[list[str]]:
    """A row per candidate: where its way ended, and why."""
    rows = []
    for number, _, candidate in summary.candidates:
        last = candidate.judged.get(candidate.last_gate)
        rows.append(
            [
                str(number),
                candidate.id,
                candidate.change,
                words.outcome(candidate),
                words.gain(candidate) + over(candidate),
                words.evidence(candidate),
                "; ".join(last.reasons) if last else "",
            ]
        )
    return rows


def over(candidate: Candidate) -> str:
    """Of how many seeds or units a candidate's gain is the mean, as the end of a sentence."""
    if candidate.gain is None:
        return ""
    unit = "seed" if candidate.seeds is not None else "unit"
    return f" over {words.count(candidate.gain.n, unit)}"


def hypothesis_rows(summary: Summary) -> list[list[str]]:
    """A row per candidate: what it predicted, and what came."""
    rows = []
    for _, _, candidate in summary.candidates:
        proposal, mechanism = candidate.proposal, candidate.mechanism
        predicted = f"{proposal.observable} {'up' if proposal.sign > 0 else 'down'}"
        measured = ""
        if mechanism is not None and mechanism.change is not None:
            measured = f"{words.interval(mechanism.change)} by {mechanism.by}"
        verdict = words.prediction(candidate) or "not judged"
        rows.append([candidate.id, proposal.hypothesis, predicted, measured, verdict])
    return rows


def cost_rows(summary: Summary) -> list[list[str]]:
    """What the campaign took."""
    return [[title, markdown.number(getattr(summary.cost, name))] for name, title in COST]
