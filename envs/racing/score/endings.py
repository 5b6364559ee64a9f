"""Whether a tick ends the episode, and why.

Preset carracing keeps a known fault of CarRacing-v3: `lap_complete_percent` does nothing, because
the car touches tile 0 at the reset. A lap ends only when every tile has been touched. The correct
value, laps by arc length, is `progress` in every info.
"""

from __future__ import annotations

from collections import namedtuple
from dataclasses import astuple, fields
from typing import Annotated

from pydantic import Field

from common.schema import config_class
from envs.racing.sim.kernel import kernel

(
    NOT_ENDED,
    LEFT_PLAYFIELD,
    FINISHED,
    LEFT_ROAD,
    STUCK,
    NO_PROGRESS,
    TIME_UP,
) = range(7)
"""Why an episode ended; if several apply, the first counts. TIME_UP truncates, the others
terminate."""


Ticks = Annotated[int, Field(ge=0)]


@config_class
class EndingConfig:
    """What ends an episode, apart from `EnvConfig.max_ticks`, which truncates it.

    Attributes:
        playfield: whether leaving CarRacing's playfield ends it.
        finish: whether the finish ends it. With false, training continues until max_ticks. The
            picture does not show the finish, so an ending there is noise to the value function. It
            also works like a penalty, because no more reward follows.
        off_track_limit: ticks in a row with all four wheels off the road that end it; 0 is off.
        stuck_limit: ticks in a row slower than stuck_speed that end it; 0 is off.
        stuck_speed: a slower car counts as stuck, units/s.
        no_progress_limit: ticks without a new best progress that end it; 0 is off.
    """

    playfield: bool = True
    finish: bool = True
    off_track_limit: Ticks = 0
    stuck_limit: Ticks = 0
    stuck_speed: Annotated[float, Field(ge=0, le=100)] = 0.8
    no_progress_limit: Ticks = 0


Limits = namedtuple("Limits", ["max_ticks", *(field.name for field in fields(EndingConfig))])
"""The endings in the form that kernels take."""


def make_limits(max_ticks: int, endings: EndingConfig) -> Limits:
    """`Limits` from a configuration of endings and the number of ticks until truncation."""
    return Limits(max_ticks, *astuple(endings))


@kernel(inline="always", counted=False)
def decide_ending(car, q, limits):
    """Update the counters for the limits, and mark the car's episode if it has ended.

    Args:
        q: `Quantities` of the tick.

    Returns:
        One of the codes above.
    """
    car.off_run = car.off_run + 1 if q.off_track else 0
    car.slow_run = car.slow_run + 1 if q.speed < limits.stuck_speed else 0
    car.stale_run = 0 if q.new_best else car.stale_run + 1
    ending = NOT_ENDED
    if limits.playfield and q.beyond_playfield:
        ending = LEFT_PLAYFIELD
    elif limits.finish and q.at_finish:
        ending = FINISHED
    elif limits.off_track_limit > 0 and car.off_run >= limits.off_track_limit:
        ending = LEFT_ROAD
    elif limits.stuck_limit > 0 and car.slow_run >= limits.stuck_limit:
        ending = STUCK
    elif limits.no_progress_limit > 0 and car.stale_run >= limits.no_progress_limit:
        ending = NO_PROGRESS
    elif car.tick >= limits.max_ticks:
        ending = TIME_UP
    car.truncated = ending == TIME_UP
    car.terminated = ending != NOT_ENDED and ending != TIME_UP
    return ending
