"""What happened to a car in one tick, as named quantities in native units.

Reward terms, endings and metrics are formulas over these. A new quantity is one field of
`Quantities` and one line of `measure`.
"""

from __future__ import annotations

from typing import NamedTuple

from envs.racing.sim.dynamics import origin_x, origin_y, wheels_off
from envs.racing.sim.kernel import kernel
from envs.racing.sim.neighbours import Neighbours
from envs.racing.sim.progress import corner_angle
from envs.racing.sim.track import PLAYFIELD


class Before(NamedTuple):
    """Values of a car at the end of the previous tick.

    Attributes:
        speed: units/s.
        arc: credited arc length, units.
        steer_command: [-1, 1].
        tiles_missed: number of tiles passed without touching them.
    """

    speed: float
    arc: float
    steer_command: float
    tiles_missed: int


class Quantities(NamedTuple):
    """One tick of one car.

    Attributes:
        new_tiles: tiles touched for the first time, as a share of all tiles.
        missed_tiles: number of tiles of the first lap passed without touching them.
        arc_gained: credited arc length, units; see `sim.progress`.
        lap_length: length of the track, units.
        new_best: whether this is the largest progress of the episode.
        at_finish: whether the last lap is complete.
        finished: whether it was completed in this tick.
        wheels_off: share of the wheels that are off the road.
        off_track: whether all four wheels are off the road.
        beyond_playfield: whether the car has left CarRacing's playfield.
        corner_angle: heading change of the road over the next 21 units, rad.
        speed, speed_before: after and before the tick, units/s.
        yaw_rate: rad/s.
        steer: command, [-1, 1].
        steer_change: absolute difference to the command before.
        brake: command, [0, 1].
        neighbours: the car's view of the other cars.
    """

    new_tiles: float
    missed_tiles: int
    arc_gained: float
    lap_length: float
    new_best: bool
    at_finish: bool
    finished: bool
    wheels_off: float
    off_track: bool
    beyond_playfield: bool
    corner_angle: float
    speed: float
    speed_before: float
    yaw_rate: float
    steer: float
    steer_change: float
    brake: float
    neighbours: Neighbours


@kernel(inline="always", counted=False)
def remember(car):
    """The values from before a tick that `measure` needs."""
    return Before(car.speed, car.arc, car.steer_command, car.tiles_missed)


@kernel(inline="always", counted=False)
def measure(car, wheels, track, before, action, laps, neighbours):
    """The quantities of the tick that a car has just completed.

    Args:
        before: `remember(car)` from before the tick.
        action: (3,) controls of the tick.
        laps: laps by arc length to the finish; 0 is CarRacing's finish, where every tile is
            touched.
        neighbours: see `sim.neighbours`.
    """
    new_tiles = (car.tiles_visited - car.tiles_counted) / track.count
    car.tiles_counted = car.tiles_visited
    new_best = car.arc > car.best_arc
    if new_best:
        car.best_arc = car.arc
    at_finish = car.tiles_visited == track.count
    if laps > 0:
        at_finish = car.arc >= laps * track.length
    finished = at_finish and car.finish_tick == 0
    beyond_playfield = abs(origin_x(car)) > PLAYFIELD or abs(origin_y(car)) > PLAYFIELD
    off = wheels_off(wheels)
    # Plain expressions only: numba cannot compile a long call with `and`, `or` or `if` inside.
    return Quantities(
        new_tiles=new_tiles,
        missed_tiles=car.tiles_missed - before.tiles_missed,
        arc_gained=car.arc - before.arc,
        lap_length=track.length,
        new_best=new_best,
        at_finish=at_finish,
        finished=finished,
        wheels_off=off / 4,
        off_track=off == 4,
        beyond_playfield=beyond_playfield,
        corner_angle=corner_angle(track, car.s),
        speed=car.speed,
        speed_before=before.speed,
        yaw_rate=car.yaw_rate,
        steer=action[0],
        steer_change=abs(action[0] - before.steer_command),
        brake=action[2],
        neighbours=neighbours,
    )
