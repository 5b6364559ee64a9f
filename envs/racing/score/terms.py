"""The reward of a tick: named terms, each a coefficient times a quantity.

`RewardConfig` is the only list of terms. A field made by `term` is the coefficient of a term and
has a column in every table of terms. A field made by `parameter` is a number in the formula of the
term above it. A new term is one field there and one formula in `_pay_tick`.

The reward of a step is the sum of its terms over the step's ticks.
"""

from __future__ import annotations

import dataclasses
import textwrap
from collections import namedtuple
from dataclasses import astuple, fields
from typing import Annotated

from pydantic import Field

from common.schema import config_class
from envs.racing.score.endings import LEFT_PLAYFIELD, LEFT_ROAD, NO_PROGRESS, NOT_ENDED, STUCK
from envs.racing.sim.kernel import kernel

Number = Annotated[float, Field(ge=-1e6, le=1e6)]
Positive = Annotated[float, Field(gt=0, le=1e6)]


def term(default: float, meaning: str) -> float:
    """A field of `RewardConfig`: the coefficient of a term, which is logged under its name."""
    return dataclasses.field(default=default, metadata={"meaning": meaning, "term": True})


def parameter(default: float, meaning: str) -> float:
    """A field of `RewardConfig`: a number in the formula of the term above it."""
    return dataclasses.field(default=default, metadata={"meaning": meaning, "term": False})


def documented(config: type) -> type:
    """Add the meanings of a configuration's fields to its docstring."""
    lines = [f"{field.name}: {field.metadata['meaning']}." for field in fields(config)]
    wrapped = [
        textwrap.fill(line, 98, initial_indent=" " * 8, subsequent_indent=" " * 12)
        for line in lines
    ]
    config.__doc__ = f"{config.__doc__.rstrip()}\n\n    Attributes:\n" + "\n".join(wrapped) + "\n"
    return config


@documented
@config_class
class RewardConfig:
    """Coefficients of the reward's terms; penalties are negative numbers. Quantities are per tick.

    If leaving the playfield ends the episode, that tick pays `playfield` and nothing else.
    """

    tile: Number = term(0.0, "per lap's worth of tiles first touched (CarRacing pays 1000)")
    missed_tile: Number = term(
        0.0,
        "per tile of the first lap that the car drives past without touching it: with one of them "
        "missing CarRacing-v3 does not end the lap, and the clock runs on",
    )
    progress: Number = term(1000.0, "per lap of credited arc length (see `sim/progress.py`)")
    finish: Number = term(0.0, "once, when the last lap is complete")
    time: Number = term(-0.1, "every tick")
    off_track: Number = term(0.0, "every tick with all four wheels off the road")
    off_track_end: Number = parameter(0.0, "once, when off_track_limit ends the episode")
    wheels_off: Number = term(0.0, "share of the wheels off the road, in every tick")
    corner_entry: Number = term(
        0.0,
        "(speed - corner_target_speed) / corner_target_speed, where positive, in a corner: while "
        "|corner_angle| > corner_threshold",
    )
    corner_threshold: Number = parameter(0.35, "rad from which on a bend ahead is a corner")
    corner_target_speed: Positive = parameter(45.0, "units/s")
    apex_decel: Number = term(0.0, "speed lost in this tick, units/s, in a corner")
    apex_decel_cap: Number = parameter(2.0, "most lost speed that counts, units/s")
    steer_smoothness: Number = term(0.0, "|change of the steering command|")
    steer_smoothness_cap: Number = parameter(0.5, "most change that counts")
    steer_magnitude: Number = term(0.0, "|steering command|")
    yaw_rate: Number = term(0.0, "|yaw rate|, rad/s")
    brake: Number = term(0.0, "brake command")
    idle: Number = term(0.0, "every tick slower than idle_speed")
    idle_speed: Number = parameter(1.0, "units/s")
    stuck: Number = term(0.0, "once, when stuck_limit ends the episode")
    no_progress: Number = term(0.0, "once, when no_progress_limit ends the episode")
    playfield: Number = term(
        -100.0, "the whole reward of the tick in which leaving the playfield ends the episode"
    )

    @classmethod
    def native(cls) -> RewardConfig:
        """CarRacing-v3's own reward: 1000/N a tile, -0.1 a tick, -100 for leaving."""
        return cls(tile=1000.0, progress=0.0, time=-0.1, playfield=-100.0)


TERMS = tuple(field.name for field in fields(RewardConfig) if field.metadata["term"])
"""Names of the terms, in the order of the columns of a table of terms."""

COLUMN = namedtuple("Column", TERMS)(*range(len(TERMS)))
"""Column of a table of terms by name."""

Coefficients = namedtuple("Coefficients", [field.name for field in fields(RewardConfig)])


def make_coefficients(config: RewardConfig) -> Coefficients:
    """The configuration as floats, in the form that kernels take."""
    return Coefficients(*(float(value) for value in astuple(config)))


@kernel(inline="always", counted=False)
def _pay_tick(terms, c, q):
    """Every line is one term: its coefficient (c) times a quantity of the tick (q)."""
    terms[COLUMN.tile] += c.tile * q.new_tiles
    terms[COLUMN.missed_tile] += c.missed_tile * q.missed_tiles
    terms[COLUMN.progress] += c.progress * q.arc_gained / q.lap_length
    terms[COLUMN.finish] += c.finish * q.finished
    terms[COLUMN.time] += c.time
    terms[COLUMN.off_track] += c.off_track * q.off_track
    terms[COLUMN.wheels_off] += c.wheels_off * q.wheels_off
    if abs(q.corner_angle) > c.corner_threshold:
        excess = (q.speed - c.corner_target_speed) / c.corner_target_speed
        terms[COLUMN.corner_entry] += c.corner_entry * max(excess, 0.0)
        lost = max(q.speed_before - q.speed, 0.0)
        terms[COLUMN.apex_decel] += c.apex_decel * min(lost, c.apex_decel_cap)
    terms[COLUMN.steer_smoothness] += c.steer_smoothness * min(
        q.steer_change, c.steer_smoothness_cap
    )
    terms[COLUMN.steer_magnitude] += c.steer_magnitude * abs(q.steer)
    terms[COLUMN.yaw_rate] += c.yaw_rate * abs(q.yaw_rate)
    terms[COLUMN.brake] += c.brake * q.brake
    terms[COLUMN.idle] += c.idle * (q.speed < c.idle_speed)


@kernel(inline="always", counted=False)
def _pay_ending(terms, c, ending):
    """The terms that are paid once, for the reason why the episode ended."""
    if ending == LEFT_ROAD:
        terms[COLUMN.off_track] += c.off_track_end
    elif ending == STUCK:
        terms[COLUMN.stuck] += c.stuck
    elif ending == NO_PROGRESS:
        terms[COLUMN.no_progress] += c.no_progress


@kernel(inline="always", counted=False)
def total(terms):
    """Sum of the terms (len(TERMS),), in their order."""
    value = 0.0
    for i in range(len(terms)):
        value += terms[i]
    return value


@kernel(counted=False)
def pay(terms, c, q, ending):
    """Add the reward of one tick to the terms of a step.

    Args:
        terms: (len(TERMS),) float64.
        c: `Coefficients`; q: `Quantities` of the tick.
        ending: code of `endings`.

    Returns:
        The total reward of the tick.
    """
    if ending == LEFT_PLAYFIELD:
        # The reference replaces the whole reward of this tick.
        terms[COLUMN.playfield] += c.playfield
        return c.playfield
    before = total(terms)
    _pay_tick(terms, c, q)
    if ending != NOT_ENDED:
        _pay_ending(terms, c, ending)
    return total(terms) - before
