"""A campaign as people read it: a section of REPORT.md, a page for a browser, and two pictures.

All of it is text made from the ledger (or a calibration's record) alone, so that the same ledger
gives the same bytes.
"""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from typing import Any

from autoresearch.judge.calibration import CALIBRATIONS
from autoresearch.loop.state import BASE, Candidate
from autoresearch.report import display
from autoresearch.report.summary import Summary
from common import markdown

COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#666666")
"""Okabe and Ito's, which the colour-blind can tell apart."""
LABEL = 13.0
"""Height of a line of text in a picture."""
STYLE = """body{font:15px/1.5 system-ui,sans-serif;max-width:62rem;margin:2rem auto;padding:0 1rem;
color:#222}table{border-collapse:collapse;width:100%;margin:1rem 0;font-size:14px}
th,td{text-align:left;vertical-align:top;padding:.3rem .6rem;border-bottom:1px solid #ddd}
th{border-bottom:2px solid #888}tr.promoted td{background:#e6f4ea}svg{max-width:100%;height:auto}
code{background:#f3f3f3;padding:0 .2rem}"""

CAVEAT = (
    "Hypotheses, each with what was predicted of a native quantity and what was found, whatever "
    "became of the candidate. What was found by units of one training seed is true of that "
    "checkpoint; another seed may say otherwise"
)
GATES = ("generation", "candidate", "change", "ended at", "gain", "evidence", "because")
HYPOTHESES = ("candidate", "hypothesis", "predicted", "found", "verdict")
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


def section(summary: Summary, place: str) -> str:
    """The campaign's part of REPORT.md, whose pictures are in the directory `place`."""
    config, name = summary.config, summary.config.name
    parts = [
        f"## Campaign {name}",
        f"`{summary.command}`, begun {summary.began}, code "
        f"{summary.code[:10]}; {_resumed(summary.state.resumes)}. As a page: "
        f"[{place}/index.html]({place}/index.html). Every decision can be taken again: "
        f"`python -m autoresearch verify directory={place}`.",
        _told(summary),
        f"![lineage]({place}/lineage.svg)",
        f"![evidence]({place}/evidence.svg)",
        markdown.table([*GATES], gate_rows(summary)),
        f"{CAVEAT}:",
        # What a proposer wrote is text, whatever it looks like.
        markdown.table(
            [*HYPOTHESES],
            [[html.escape(c, quote=False) for c in row] for row in hypothesis_rows(summary)],
        ),
        markdown.table([f"cost of {config.name}", ""], cost_rows(summary)),
    ]
    return "\n\n".join(parts)


def calibration(record: Mapping[str, Any]) -> str:
    """What a kept calibration measured, as a part of REPORT.md."""
    settings, metrics = record["settings"], record["metrics"]
    name = record["name"].removeprefix(CALIBRATIONS)
    primary = settings["primary"]
    seeds = ", ".join(map(str, settings["seeds"]))
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
    return "\n\n".join(
        [
            f"## Error rates of the gates of {name}",
            markdown.provenance(record),
            f"One configuration, {metrics['runs']} training seeds of {settings['budget']:,} ticks "
            f"({metrics['seconds_per_run']:.0f} s each), judged on the same {metrics['units']} "
            f"tracks: {primary} {markdown.number(metrics['mean'])}, standard deviation "
            f"{markdown.number(metrics['sd_over_seeds'])} over seeds and "
            f"{markdown.number(metrics['sd_over_units'])} over a seed's tracks. From these runs "
            f"{metrics['campaigns']:,} campaigns of {settings['generations']} generations with "
            f"{settings['candidates']} candidates are drawn for each row; generations take {seeds} "
            f"pairs of seeds at an error budget of {settings['alpha']:g}. With no gain, every "
            "promotion is luck. Minutes are of training alone, one run at a time. Best of three "
            "is what the earlier record did: three candidates, three unpaired episodes each, the "
            "best mean wins if it is above the parent's.",
            markdown.table(header, rows),
        ]
    )


def page(summary: Summary) -> str:
    """The same as one self-contained HTML file."""
    name = html.escape(summary.config.name)
    promoted = [c.promoted for _, _, c in summary.candidates]
    return "\n".join(
        [
            "<!doctype html>",
            f'<html lang="en"><meta charset="utf-8"><title>Campaign {name}</title>',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<style>{STYLE}</style>",
            f"<h1>Campaign {name}</h1>",
            f"<p>Begun {summary.began}, code <code>{summary.code[:10]}</code>, "
            f"{_resumed(summary.state.resumes)}.</p>",
            f"<p>{html.escape(_told(summary))}</p>",
            "<h2>Lineage</h2>",
            lineage(summary),
            "<h2>Evidence</h2>",
            evidence(summary),
            "<h2>Gates</h2>",
            _html_table(GATES, gate_rows(summary), promoted),
            "<h2>Hypotheses</h2>",
            f"<p>{CAVEAT}.</p>",
            _html_table(HYPOTHESES, hypothesis_rows(summary), promoted),
            "<h2>Cost</h2>",
            _html_table(("", ""), cost_rows(summary)),
            "</html>",
            "",
        ]
    )


def gate_rows(summary: Summary) -> list[list[str]]:
    """A row per candidate: where its way ended, and why."""
    rows = []
    for number, _, candidate in summary.candidates:
        _, _, _, gain, proof, _, _ = display.row(candidate)
        gain += over(candidate)
        why = "; ".join(candidate.judged.get(candidate.last_gate, {}).get("reasons", ()))
        rows.append(
            [str(number), candidate.id, candidate.change, outcome(candidate), gain, proof, why]
        )
    return rows


def over(candidate: Candidate) -> str:
    """Of how many seeds or units a candidate's gain is the mean, as the end of a sentence."""
    for gate, units in (("G4", "seed"), ("G3", "unit")):
        if gain := candidate.judged.get(gate, {}).get("gain"):
            return f" over {_count(gain['n'], units)}"
    return ""


def hypothesis_rows(summary: Summary) -> list[list[str]]:
    """A row per candidate: what it predicted, and what came."""
    rows = []
    for _, _, candidate in summary.candidates:
        proposal, told = candidate.proposal, candidate.judged.get("G5", {})
        predicted = f"{proposal['observable']} {'up' if proposal['sign'] > 0 else 'down'}"
        found = f"{display.interval(told['change'])} by {told['by']}" if "change" in told else ""
        verdict = told.get("verdict", "not judged")
        rows.append([candidate.id, proposal["hypothesis"], predicted, found, verdict])
    return rows


def cost_rows(summary: Summary) -> list[list[str]]:
    """What the campaign took."""
    return [[title, markdown.number(getattr(summary.cost, name))] for name, title in COST]


def evidence(summary: Summary) -> str:
    """SVG: the e-process of every screened candidate over its tracks, on a log scale."""
    gates = summary.config.gates
    curves = {
        candidate.id: told["e_curve"]
        for _, _, candidate in summary.candidates
        if (told := candidate.judged.get("G3", {})).get("e_curve")
    }
    width, height, left, right, top, bottom = 860, 340, 60, 120, 20, 40
    units = max([len(curve) for curve in curves.values()], default=1)
    logs = [math.log10(max(e, 1e-6)) for curve in curves.values() for e in curve]
    low = min([-1.0, *map(math.floor, logs)])
    high = max([math.ceil(math.log10(gates.win)) + 1.0, *map(math.ceil, logs)])
    low, high = max(low, -6.0), min(high, 12.0)

    def x(unit: float) -> float:
        return left + (width - left - right) * unit / units

    def y(log: float) -> float:
        log = min(max(log, low), high)
        return top + (height - top - bottom) * (high - log) / (high - low)

    marks = []
    step = max(1, math.ceil((high - low) / 8))
    for log in range(int(low), int(high) + 1, step):
        marks.append(_line(left, y(log), width - right, y(log), "#e3e3e3"))
        label = f"1e{log}" if abs(log) > 2 else f"{10.0**log:g}"
        marks.append(_text(left - 6, y(log) + 4, label, anchor="end"))
    at = math.log10(gates.win)
    marks.append(_line(left, y(at), width - right, y(at), "#222", dashed=True))
    middle = (left + width - right) / 2
    told = f"evidence of a gain, by units; dashed: a win at {gates.win:g}, if every guard holds too"
    marks.append(_text(middle, height - 6, told, "middle"))
    for unit in sorted({0, units // 2, units}):
        marks.append(_text(x(unit), height - bottom + 14, str(unit), "middle"))
    ends: dict[float, list[tuple[float, str, str]]] = {}
    for place, (name, curve) in enumerate(curves.items()):
        colour = COLOURS[place % len(COLOURS)]
        logs = [0.0, *(math.log10(max(e, 1e-6)) for e in curve)]
        # A curve that leaves the picture ends there: a line along its edge would be no evidence.
        beyond = next((i for i, log in enumerate(logs) if log > high), None)
        if beyond is not None:
            logs, name = logs[: beyond + 1], f"{name}, at last {curve[-1]:.0e}"
        points = [(x(i), y(log)) for i, log in enumerate(logs)]
        path = " ".join(f"{px:.1f},{py:.1f}" for px, py in points)
        marks.append(
            f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.6"/>'
        )
        ends.setdefault(points[-1][0], []).append((points[-1][1], name, colour))
    for px, labels in ends.items():
        labels.sort()
        heights = _apart([wanted for wanted, _, _ in labels], top, height - bottom)
        for at, (_, name, colour) in zip(heights, labels, strict=True):
            marks.append(_text(px + 6, at + 4, name, colour=colour))
    if not curves:
        marks.append(_text(middle, height / 2, "no candidate was screened", "middle"))
    return _svg(width, height, marks)


def lineage(summary: Summary) -> str:
    """SVG: who descends from whom, a column per generation; promoted ones are filled."""
    generations = summary.state.generations
    deepest = max([len(g.candidates) for g in generations], default=0)
    box, gap, row = 216, 60, 46
    width = 20 + (box + gap) * (len(generations) + 1)
    height = max(70, 30 + row * max(deepest, 1))
    places: dict[str, tuple[float, float]] = {BASE: (10, height / 2)}
    marks, boxes = [], [_box(10, height / 2, box, BASE, "", "#eeeeee")]
    for column, generation in enumerate(generations, 1):
        x = 10 + (box + gap) * column
        count = len(generation.candidates)
        for index, candidate in enumerate(generation.candidates.values()):
            y = height / 2 + row * (index - (count - 1) / 2)
            places[candidate.id] = (x, y)
            px, py = places[generation.parent]
            colour = "#009E73" if candidate.promoted else "#bbbbbb"
            marks.append(_line(px + box, py, x, y, colour))
            fill = "#cfe9d8" if candidate.promoted else "#ffffff"
            boxes.append(_box(x, y, box, f"{candidate.id}: {outcome(candidate)}",
                              _short(candidate.change), fill))  # fmt: skip
    return _svg(width, height, [*marks, *boxes])


def outcome(candidate: Candidate) -> str:
    """Where a candidate's way ended, in a word or two: "promoted", "G3 futile", "G1 crash"."""
    if candidate.promoted:
        return "promoted"
    return f"{candidate.last_gate} {candidate.verdict}" if candidate.last_gate else "not judged"


def _told(summary: Summary) -> str:
    """In sentences: what came of it."""
    state, gates = summary.state, summary.config.gates
    promoted = [c for _, _, c in summary.candidates if c.promoted]
    refused = sum(len(g.refused) for g in state.generations)
    parts = [
        f"{_count(len(state.candidates), 'candidate')} in "
        f"{_count(len(state.generations), 'generation')} by the "
        f"proposer {summary.config.proposer.kind}"
        + (f", {refused} more proposals refused" if refused else "")
        + f"; error budget {gates.alpha:g}, primary {gates.primary.name}."
    ]
    if promoted:
        parts.append("Promoted: " + "; ".join(_promotion(c) for c in promoted) + ".")
    else:
        parts.append("Nothing was promoted.")
    if state.final is not None:
        parts += [line[0].upper() + line[1:] + "." for line in display.final_line(state)]
    parts.append(f"It ended: {state.ended}." if state.ended else "It has not ended.")
    return " ".join(parts)


def _promotion(candidate: Candidate) -> str:
    told = candidate.judged["G4"]
    gain = display.interval(told["gain"])
    return f"{candidate.id} ({candidate.change}), gain {gain} over {_count(told['seeds'], 'seed')}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}" + ("" if number == 1 else "s")


def _resumed(times: int) -> str:
    told = {0: "never interrupted", 1: "taken up again once"}
    return told.get(times, f"taken up again {times} times")


def _html_table(
    header: Sequence[str], rows: Sequence[Sequence[str]], marked: Sequence[bool] = ()
) -> str:
    lines = ["<table><tr>" + "".join(f"<th>{html.escape(c)}</th>" for c in header) + "</tr>"]
    for index, row in enumerate(rows):
        kind = ' class="promoted"' if index < len(marked) and marked[index] else ""
        cells = "".join(f"<td>{html.escape(cell)}</td>" for cell in row)
        lines.append(f"<tr{kind}>{cells}</tr>")
    return "\n".join([*lines, "</table>"])


def _svg(width: float, height: float, marks: Sequence[str]) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" '
        f'width="{width:g}" height="{height:g}" font-family="sans-serif" font-size="12">'
    )
    return "\n".join([head, '<rect width="100%" height="100%" fill="#ffffff"/>', *marks, "</svg>"])


def _line(x1: float, y1: float, x2: float, y2: float, colour: str, dashed: bool = False) -> str:
    dash = ' stroke-dasharray="5 4"' if dashed else ""
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}"{dash}/>'
    )


def _text(x: float, y: float, text: str, anchor: str = "start", colour: str = "#222") -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}" stroke="#ffffff" '
        'stroke-width="3" paint-order="stroke" stroke-opacity="0.8">'
        f"{html.escape(text)}</text>"
    )


def _box(x: float, y: float, width: float, first: str, second: str, fill: str) -> str:
    edge = f'<rect x="{x:.1f}" y="{y - 19:.1f}" width="{width}" height="38" rx="4" '
    lines = [f'{edge}fill="{fill}" stroke="#888888"/>']
    lines.append(_text(x + 8, y - 3 if second else y + 4, first))
    if second:
        lines.append(_text(x + 8, y + 13, second, colour="#555"))
    return "".join(lines)


def _apart(wanted: Sequence[float], low: float, high: float) -> list[float]:
    """Heights near the `wanted` ones, which ascend, a line of text apart and up to `high`."""
    places: list[float] = []
    for height in wanted:
        places.append(max(height, places[-1] + LABEL) if places else max(height, low))
    for index in reversed(range(len(places))):
        most = places[index + 1] - LABEL if index + 1 < len(places) else high
        places[index] = min(places[index], most)
    return places


def _short(change: str, most: int = 28) -> str:
    """A change that fits into a box: without the groups of its keys where it is too long."""
    if len(change) > most:
        pairs = (part.partition("=") for part in change.split(", "))
        change = ", ".join(f"{key.rpartition('.')[2]}={value}" for key, _, value in pairs)
    return change if len(change) <= most else f"{change[: most - 3]}..."


def documents(summary: Summary) -> Mapping[str, str]:
    """The files beside a kept campaign's ledger, by name."""
    return {
        "index.html": page(summary),
        "lineage.svg": lineage(summary) + "\n",
        "evidence.svg": evidence(summary) + "\n",
    }
