"""Selects the windows that a probe uses: by rules on probe tracks, never by hand.

A rule looks only at the recorded motion within the horizon. Windows that fit are selected in an
order that spreads them over tracks and directions. The resulting list is committed with the rule in
experiments/records, and a probe reports whether its clips are the committed ones.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from common.errors import UserError
from common.records import read_record
from common.seeding import derive
from replay import DataSet
from replay.index import collect_command
from replay.schema import DIRECTIONS

CLIPS = "probe_clips"
"""Name of the record with the rules and the clips that they select."""


@dataclass(frozen=True)
class ClipRule:
    """The conditions that the horizon of a window must meet.

    Attributes:
        turn: smallest and largest absolute change of the car's heading, rad.
        speed: smallest mean speed, units/s.
        off_before: the car must have all wheels off the road in the last row of the context.
        on_after: it must have all wheels on the road in the last row of the horizon.
        off: largest share of the horizon with all wheels off the road.
        clips: largest number of clips to select.
        least: smallest number of clips; fewer is an error.
        per_episode: largest number of clips from one episode.
        tracks: the data set that the clips come from; None for PROBE.
    """

    turn: tuple[float, float] = (0.0, 100.0)
    speed: float = 0.0
    off_before: bool = False
    on_after: bool = False
    off: float = 1.0
    clips: int = 96
    least: int = 64
    per_episode: int = 2
    tracks: str | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.turn[0] < self.turn[1]:
            raise ValueError(f"turn is a minimum and a larger maximum, not {list(self.turn)}")
        if not 1 <= self.least <= self.clips <= 4096:
            raise ValueError(f"clips is {self.least} (least) to 4096, not {self.clips}")
        if self.per_episode < 1:
            raise ValueError(f"per_episode is at least 1, not {self.per_episode}")


RULES = {
    "sharp_turn": ClipRule(turn=(0.8, 100.0), speed=25.0, off=0.2),
    "gentle_turn": ClipRule(turn=(0.25, 0.6), speed=25.0, off=0.0),
    "straight": ClipRule(turn=(0.0, 0.08), speed=25.0, off=0.0),
    "recovery": ClipRule(off_before=True, on_after=True, speed=5.0, least=32),
    "novel_layout": ClipRule(turn=(0.25, 100.0), speed=20.0, off=0.2, tracks="NOVEL"),
    "faithfulness": ClipRule(clips=256),
}
"""The rules of the probes. Turning 0.8 rad (46 degrees) in a second is near the limit of grip."""


@dataclass(frozen=True)
class Clip:
    """One window. `start` is its first row in the data set; the other fields describe it."""

    start: int
    track_seed: int
    direction: str
    scenario: str
    row: int
    turn: float
    speed: float


def find_clips(
    data: DataSet, rule: ClipRule, context: int, horizon: int, seed: int = 0
) -> list[Clip]:
    """The windows of `context + horizon` rows that a rule selects, in the order of selection.

    Windows are selected in rounds; every round takes one window from each episode. `seed`
    determines the order of the episodes, but those of tracks and directions with the fewest clips
    so far come first. Windows of one episode do not overlap, and no window crosses the start of an
    episode.

    Raises:
        UserError: fewer than `rule.least` windows fit it.
    """
    candidates = _candidates(data, rule, context, horizon)
    length = context + horizon
    order = np.random.default_rng(derive(seed, "clips") % 2**63).permutation(len(candidates))
    groups: dict[tuple[int, int], int] = {}
    selected: list[Clip] = []
    used: dict[int, list[int]] = {}
    for _ in range(rule.per_episode):
        pending = [int(i) for i in order if candidates[int(i)]]
        pending.sort(key=lambda i: groups.get(_group(data, i), 0))
        for episode in pending:
            if len(selected) >= rule.clips:
                break
            free = [
                clip
                for clip in candidates[episode]
                if all(abs(clip.start - start) >= length for start in used.get(episode, []))
            ]
            if not free:
                continue
            best = max(free, key=lambda clip: (abs(clip.turn), -clip.start))
            selected.append(best)
            used.setdefault(episode, []).append(best.start)
            groups[_group(data, episode)] = groups.get(_group(data, episode), 0) + 1
    if len(selected) < rule.least:
        longest = int(data.episodes["length"].max())
        advice = f"collect more of it by {collect_command(data.path)}"
        if longest < length:
            advice = f"its longest episode has {longest}: use a shorter context or horizon"
        raise UserError(
            f"{data.path}: only {len(selected)} windows of {length} rows fit the rule, which needs "
            f"{rule.least}; {advice}"
        )
    return selected


def _group(data: DataSet, episode: int) -> tuple[int, int]:
    row = data.episodes[episode]
    return int(row["track_seed"]), int(row["direction"])


def _candidates(data: DataSet, rule: ClipRule, context: int, horizon: int) -> list[list[Clip]]:
    """Windows that fit the rule, by episode. Every fifth row is tried as a start."""
    heading = data.column("telemetry/heading")
    speed = data.column("telemetry/speed")
    off_track = data.column("telemetry/off_track")
    by_episode: list[list[Clip]] = []
    for episode in data.episodes:
        first, rows = int(episode["start"]), int(episode["length"])
        clips: list[Clip] = []
        headings = np.unwrap(heading[first : first + rows].astype(np.float64))
        for row in range(0, rows - context - horizon + 1, 5):
            last, end = row + context - 1, row + context + horizon - 1
            turn = headings[end] - headings[last]
            future = slice(first + last + 1, first + end + 1)
            pace = float(speed[future].mean())
            fits = (
                rule.turn[0] <= abs(turn) <= rule.turn[1]
                and pace >= rule.speed
                and (not rule.off_before or off_track[first + last] == 1)
                and (not rule.on_after or off_track[first + end] == 0)
                and float((off_track[future] == 1).mean()) <= rule.off
            )
            if fits:
                clips.append(
                    Clip(
                        start=first + row,
                        track_seed=int(episode["track_seed"]),
                        direction=DIRECTIONS[int(episode["direction"])],
                        scenario=str(episode["scenario"]),
                        row=row,
                        turn=round(float(turn), 4),
                        speed=round(pace, 2),
                    )
                )
        by_episode.append(clips)
    return by_episode


def listing(clips: list[Clip], rule: ClipRule, data: DataSet) -> dict[str, Any]:
    """The rule and its clips as plain data. Two lists are equal if their `hash` is equal."""
    rows = [asdict(clip) for clip in clips]
    for row in rows:
        del row["start"]
    return {
        "rule": asdict(rule) | {"turn": list(rule.turn)},
        "data": data.sha256,
        "tracks": len({clip.track_seed for clip in clips}),
        "directions": _count(clip.direction for clip in clips),
        "scenarios": _count(clip.scenario for clip in clips),
        "hash": hashlib.sha256(json.dumps(rows, sort_keys=True).encode()).hexdigest(),
        "clips": rows,
    }


def committed(name: str, listed: Mapping[str, Any]) -> bool | None:
    """Whether the clips in `listed` are the first ones of the probe's list in the record CLIPS.

    None if there is no such record or if it was made with another rule.
    """
    record = read_record(CLIPS)
    recorded = record["details"].get(name) if record else None
    counts = ("clips", "least")  # these change how many clips are selected, not which
    if recorded is None or any(
        recorded["rule"][key] != value for key, value in listed["rule"].items() if key not in counts
    ):
        return None
    return recorded["clips"][: len(listed["clips"])] == listed["clips"]


def _count(values) -> Mapping[str, int]:
    names, counts = np.unique(list(values), return_counts=True)
    return dict(zip(names.tolist(), counts.tolist(), strict=True))


def starts(clips: list[Clip]) -> NDArray[np.int64]:
    """First rows of the clips, (n,)."""
    return np.array([clip.start for clip in clips], np.int64)
