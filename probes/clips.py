"""Which windows a probe judges by: found by geometry on probe tracks, never picked by hand.

A rule looks at the recorded motion of the horizon only. Windows that pass are taken in an order
that spreads them over tracks and directions; the list that results is kept beside the rule in
experiments/records, and a judge says whether its clips are the listed ones.
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
"""Record of the rules and the clips that they found."""


@dataclass(frozen=True)
class ClipRule:
    """What a window's horizon has to show.

    Attributes:
        turn: rad, least and most absolute change of the car's heading.
        speed: units/s, least mean.
        off_before: the car has all wheels off the road in the last row of the context.
        on_after: it has all of them on the road in the last row of the horizon.
        off: most share of the horizon with all wheels off the road.
        clips: how many to take, at most.
        least: fewer than this is an error.
        per_episode: taken from one episode, at most.
        tracks: the dataset that they come from; None for the probes' own.
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
            raise ValueError(f"turn is least and most, unlike {list(self.turn)}")
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
"""The probes' rules. 0.8 rad (46 degrees) in a second is a bend at the limit of the grip."""


@dataclass(frozen=True)
class Clip:
    """One window: `start` is its first row in the data set, the rest says where that is."""

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
    """The windows of `context + horizon` rows that a rule takes, in the order it takes them.

    Episodes are gone through in rounds, in an order drawn from `seed`: one window of each in a
    round, those of tracks and directions that have fewest so far first. Windows of one episode do
    not overlap, and none crosses an episode's start.

    Raises:
        UserError: fewer than `rule.least` windows fit it.
    """
    candidates = _candidates(data, rule, context, horizon)
    length = context + horizon
    order = np.random.default_rng(derive(seed, "clips") % 2**63).permutation(len(candidates))
    groups: dict[tuple[int, int], int] = {}
    taken: list[Clip] = []
    used: dict[int, list[int]] = {}
    for _ in range(rule.per_episode):
        pending = [int(i) for i in order if candidates[int(i)]]
        pending.sort(key=lambda i: groups.get(_group(data, i), 0))
        for episode in pending:
            if len(taken) >= rule.clips:
                break
            free = [
                clip
                for clip in candidates[episode]
                if all(abs(clip.start - other) >= length for other in used.get(episode, []))
            ]
            if not free:
                continue
            best = max(free, key=lambda clip: (abs(clip.turn), -clip.start))
            taken.append(best)
            used.setdefault(episode, []).append(best.start)
            groups[_group(data, episode)] = groups.get(_group(data, episode), 0) + 1
    if len(taken) < rule.least:
        longest = int(data.episodes["length"].max())
        advice = f"collect more of it by {collect_command(data.path)}"
        if longest < length:
            advice = f"its longest episode has {longest}: take a shorter context or horizon"
        raise UserError(
            f"{data.path}: only {len(taken)} windows of {length} rows fit the rule, which needs "
            f"{rule.least}; {advice}"
        )
    return taken


def _group(data: DataSet, episode: int) -> tuple[int, int]:
    row = data.episodes[episode]
    return int(row["track_seed"]), int(row["direction"])


def _candidates(data: DataSet, rule: ClipRule, context: int, horizon: int) -> list[list[Clip]]:
    """Windows that pass, by episode; every fifth row may start one."""
    heading = data.column("telemetry/heading")
    speed = data.column("telemetry/speed")
    off = data.column("telemetry/off_track")
    found: list[list[Clip]] = []
    for episode in data.episodes:
        first, rows = int(episode["start"]), int(episode["length"])
        clips: list[Clip] = []
        turned = np.unwrap(heading[first : first + rows].astype(np.float64))
        for row in range(0, rows - context - horizon + 1, 5):
            now, end = row + context - 1, row + context + horizon - 1
            turn = turned[end] - turned[now]
            future = slice(first + now + 1, first + end + 1)
            pace = float(speed[future].mean())
            fits = (
                rule.turn[0] <= abs(turn) <= rule.turn[1]
                and pace >= rule.speed
                and (not rule.off_before or off[first + now] == 1)
                and (not rule.on_after or off[first + end] == 0)
                and float((off[future] == 1).mean()) <= rule.off
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
        found.append(clips)
    return found


def listing(clips: list[Clip], rule: ClipRule, data: DataSet) -> dict[str, Any]:
    """Rule and clips as plain data, to be kept; `hash` tells two lists apart."""
    rows = [{k: v for k, v in asdict(clip).items() if k != "start"} for clip in clips]
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
    """Whether the clips in `listed` are the first of those that the record CLIPS has for a probe;
    None where there is no such record or it was made by another rule."""
    record = read_record(CLIPS)
    kept = record["details"].get(name) if record else None
    others = ("clips", "least")  # how many are taken, not which
    if kept is None or any(
        kept["rule"][key] != value for key, value in listed["rule"].items() if key not in others
    ):
        return None
    return kept["clips"][: len(listed["clips"])] == listed["clips"]


def _count(values) -> Mapping[str, int]:
    names, counts = np.unique(list(values), return_counts=True)
    return dict(zip(names.tolist(), counts.tolist(), strict=True))


def starts(clips: list[Clip]) -> NDArray[np.int64]:
    """(n,) first rows."""
    return np.array([clip.start for clip in clips], np.int64)
