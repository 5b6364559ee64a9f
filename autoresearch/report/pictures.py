"""Two pictures of a campaign, as SVG: the evidence of its screens, and its lineage.

The functions here compute where everything goes; templates/picture.svg.j2 draws it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from autoresearch.report import words
from autoresearch.report.summary import Summary
from autoresearch.report.templates import render
from autoresearch.types.run import BASE

COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#666666")
"""Okabe and Ito's, which people with colour vision deficiency can tell apart."""
LABEL = 13.0
"""Height of a line of text."""


@dataclass(frozen=True)
class Line:
    """A straight line."""

    x1: float
    y1: float
    x2: float
    y2: float
    colour: str
    dashed: bool = False


@dataclass(frozen=True)
class Label:
    """A line of text; `anchor` is start, middle or end."""

    x: float
    y: float
    text: str
    anchor: str = "start"
    colour: str = "#222"


@dataclass(frozen=True)
class Curve:
    """A line through points (x, y)."""

    points: list[tuple[float, float]]
    colour: str


@dataclass(frozen=True)
class Box:
    """A box with one or two lines of text; (x, y) is the middle of its left edge."""

    x: float
    y: float
    width: float
    fill: str


@dataclass
class Picture:
    """What is drawn, in this order: lines, curves, boxes, labels."""

    width: float
    height: float
    lines: list[Line] = field(default_factory=list)
    curves: list[Curve] = field(default_factory=list)
    boxes: list[Box] = field(default_factory=list)
    labels: list[Label] = field(default_factory=list)

    def svg(self) -> str:
        """The picture as an SVG document."""
        return render("picture.svg.j2", picture=self)

    def box(self, x: float, y: float, width: float, first: str, second: str, fill: str) -> None:
        """Add a box with its text."""
        self.boxes.append(Box(x, y, width, fill))
        self.labels.append(Label(x + 8, y - 3 if second else y + 4, first))
        if second:
            self.labels.append(Label(x + 8, y + 13, second, colour="#555"))


def evidence(summary: Summary) -> str:
    """SVG: the e-value of every screened candidate after each unit, on a log scale."""
    win = summary.config.gates.win
    curves = {
        candidate.id: candidate.screen.e_curve
        for _, _, candidate in summary.candidates
        if candidate.screen is not None
    }
    left, right, top, bottom = 60, 120, 20, 40
    picture = Picture(860, 340)
    units = max([len(curve) for curve in curves.values()], default=1)
    logs = [_log(value) for curve in curves.values() for value in curve]
    low = min([-1.0, *map(math.floor, logs)])
    high = max([math.ceil(math.log10(win)) + 1.0, *map(math.ceil, logs)])
    low, high = max(low, -6.0), min(high, 12.0)
    end, middle = picture.width - right, (left + picture.width - right) / 2

    def x(unit: float) -> float:
        return left + (end - left) * unit / units

    def y(log: float) -> float:
        log = min(max(log, low), high)
        return top + (picture.height - top - bottom) * (high - log) / (high - low)

    step = max(1, math.ceil((high - low) / 8))
    for log in range(int(low), int(high) + 1, step):
        picture.lines.append(Line(left, y(log), end, y(log), "#e3e3e3"))
        text = f"1e{log}" if abs(log) > 2 else f"{10.0**log:g}"
        picture.labels.append(Label(left - 6, y(log) + 4, text, "end"))
    at = y(math.log10(win))
    picture.lines.append(Line(left, at, end, at, "#222", dashed=True))
    title = f"e-value of a gain, by units; dashed: a win at {win:g}, if every guard holds too"
    picture.labels.append(Label(middle, picture.height - 6, title, "middle"))
    for unit in sorted({0, units // 2, units}):
        picture.labels.append(Label(x(unit), picture.height - bottom + 14, str(unit), "middle"))
    ends: dict[float, list[tuple[float, str, str]]] = {}
    for place, (name, curve) in enumerate(curves.items()):
        colour = COLOURS[place % len(COLOURS)]
        logs = [0.0, *map(_log, curve)]
        # A curve that leaves the picture ends there: a line along its edge would mean nothing.
        beyond = next((i for i, log in enumerate(logs) if log > high), None)
        if beyond is not None:
            logs, name = logs[: beyond + 1], f"{name}, at last {curve[-1]:.0e}"
        points = [(x(i), y(log)) for i, log in enumerate(logs)]
        picture.curves.append(Curve(points, colour))
        ends.setdefault(points[-1][0], []).append((points[-1][1], name, colour))
    for px, labels in ends.items():
        labels.sort()
        heights = apart([height for height, _, _ in labels], top, picture.height - bottom)
        for height, (_, name, colour) in zip(heights, labels, strict=True):
            picture.labels.append(Label(px + 6, height + 4, name, colour=colour))
    if not curves:
        text = "no candidate was screened"
        picture.labels.append(Label(middle, picture.height / 2, text, "middle"))
    return picture.svg()


def lineage(summary: Summary) -> str:
    """SVG: which candidate descends from which, a column per generation; promoted ones filled."""
    generations = summary.state.generations
    deepest = max([len(g.candidates) for g in generations], default=0)
    box, gap, row = 300, 50, 46
    height = max(70, 30 + row * max(deepest, 1))
    picture = Picture(20 + 90 + (box + gap) * len(generations), height)
    edges = {BASE: (100.0, height / 2)}  # the right edge of each box
    picture.box(10, height / 2, 90, BASE, "", "#eeeeee")
    for column, generation in enumerate(generations):
        x, count = 100 + gap + (box + gap) * column, len(generation.candidates)
        for index, candidate in enumerate(generation.candidates.values()):
            y = height / 2 + row * (index - (count - 1) / 2)
            edges[candidate.id] = (x + box, y)
            colour = "#009E73" if candidate.promoted else "#bbbbbb"
            picture.lines.append(Line(*edges[generation.parent], x, y, colour))
            fill = "#cfe9d8" if candidate.promoted else "#ffffff"
            first = f"{candidate.id}: {words.outcome(candidate)}"
            picture.box(x, y, box, first, short(candidate.change), fill)
    return picture.svg()


def apart(heights: Sequence[float], low: float, high: float) -> list[float]:
    """Heights near the given ones, which ascend, at least a line of text apart and up to `high`."""
    places: list[float] = []
    for height in heights:
        places.append(max(height, places[-1] + LABEL) if places else max(height, low))
    for index in reversed(range(len(places))):
        most = places[index + 1] - LABEL if index + 1 < len(places) else high
        places[index] = min(places[index], most)
    return places


def short(change: str, most: int = 42) -> str:
    """A change that fits into a box: without the groups of its keys if it is too long."""
    if len(change) > most:
        pairs = (part.partition("=") for part in change.split(", "))
        change = ", ".join(f"{key.rpartition('.')[2]}={value}" for key, _, value in pairs)
    return change if len(change) <= most else f"{change[: most - 3]}..."


def _log(value: float) -> float:
    return math.log10(max(value, 1e-6))
