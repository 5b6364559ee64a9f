"""A campaign as people read it: a section of REPORT.md, and a page for a browser.

Both are made from the ledger and its artifacts (or a calibration's record) alone, so the same
ledger gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from markupsafe import Markup

from autoresearch.judge.calibration import CALIBRATIONS
from autoresearch.loop.state import Candidate
from autoresearch.report import pictures, tables, words
from autoresearch.report.summary import Summary
from autoresearch.report.templates import render
from common import markdown

CAVEAT = (
    "Hypotheses: what each candidate was expected to do, as a measure that goes up or down, and "
    "what was measured, whatever became of the candidate. A result by units of one training seed "
    "is true of that checkpoint; another seed may give another result."
)


def section(summary: Summary, place: str) -> str:
    """The campaign's part of REPORT.md; its page and pictures are in the directory `place`."""
    return render("section.md.j2", place=place, **_values(summary)).rstrip()


def page(summary: Summary) -> str:
    """The same as one self-contained HTML file."""
    return (
        render(
            "page.html.j2",
            lineage=Markup(pictures.lineage(summary)),
            evidence=Markup(pictures.evidence(summary)),
            promoted=[i for i, (_, _, c) in enumerate(summary.candidates) if c.promoted],
            **_values(summary),
        )
        + "\n"
    )


def documents(summary: Summary) -> Mapping[str, str]:
    """The files beside a kept campaign's ledger, by name."""
    return {
        "index.html": page(summary),
        "lineage.svg": pictures.lineage(summary) + "\n",
        "evidence.svg": pictures.evidence(summary) + "\n",
    }


def calibration(record: Mapping[str, Any]) -> str:
    """What a kept calibration measured, as a part of REPORT.md."""
    rows = [
        [
            f"{row['effect']:g}",
            markdown.estimate(row["promoted"]),
            markdown.estimate(row["screened"]),
            markdown.number(row["runs"]),
            markdown.number(row["minutes"]),
            markdown.estimate(row["best_of_three"]),
            "" if row["inflation"] is None else markdown.number(row["inflation"]),
        ]
        for row in record["details"]["rows"]
    ]
    header = ["true gain of every candidate", "campaigns that promote", "that pass a screen",
              "runs", "minutes", "best of three promotes", "and flatters by"]  # fmt: skip
    return render(
        "calibration.md.j2",
        name=record["name"].removeprefix(CALIBRATIONS),
        provenance=Markup(markdown.provenance(record)),
        settings=record["settings"],
        metrics=record["metrics"],
        header=header,
        rows=rows,
    ).rstrip()


def _values(summary: Summary) -> dict[str, Any]:
    """What the section and the page share."""
    gates = summary.config.gates
    return {
        "summary": summary,
        "config": summary.config,
        "resumed": words.resumed(summary.state.resumes),
        "story": story(summary),
        "caveat": CAVEAT,
        "reading": (
            f"A gain is of {gates.primary.name} over the parent's, with its 95% interval. An "
            f"e-value of {gates.win:g} shows a better checkpoint; a p-value below the level of the "
            "claim shows a better configuration."
        ),
        "gate_header": tables.GATES,
        "gate_rows": tables.gate_rows(summary),
        "hypothesis_header": tables.HYPOTHESES,
        "hypothesis_rows": tables.hypothesis_rows(summary),
        "cost_rows": tables.cost_rows(summary),
    }


def story(summary: Summary) -> str:
    """In sentences, what came of the campaign."""
    state, gates = summary.state, summary.config.gates
    promoted = [candidate for _, _, candidate in summary.candidates if candidate.promoted]
    refused = sum(len(generation.refused) for generation in state.generations)
    parts = [
        f"{words.count(len(state.candidates), 'candidate')} in "
        f"{words.count(len(state.generations), 'generation')} by the "
        f"proposer {summary.config.proposer.kind}"
        + (f", {refused} more proposals refused" if refused else "")
        + f"; error budget {gates.alpha:g}, primary measure {gates.primary.name}."
    ]
    if promoted:
        parts.append("Promoted: " + "; ".join(map(_promotion, promoted)) + ".")
    else:
        parts.append("Nothing was promoted.")
    if state.final is not None:
        line = words.final(state.opened["candidate"], state.final)
        parts.append(line[0].upper() + line[1:] + ".")
    parts.append(f"It ended: {state.ended}." if state.ended else "It has not ended.")
    return " ".join(parts)


def _promotion(candidate: Candidate) -> str:
    gain = words.gain(candidate) + tables.over(candidate)
    return f"{candidate.id} ({candidate.change}), gain {gain}"
