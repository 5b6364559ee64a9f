"""What happened in a tick: every quantity on a constructed one."""

import math

import numpy as np
import pytest

from envs.racing.score.car import CAR
from envs.racing.score.endings import (
    FINISHED,
    LEFT_PLAYFIELD,
    NOT_ENDED,
    TIME_UP,
    EndingConfig,
    decide_ending,
    make_limits,
)
from envs.racing.score.quantities import measure, remember
from envs.racing.sim.dynamics import COM_Y, WHEEL
from envs.racing.sim.handles import open_track
from envs.racing.sim.kernel import kernel
from envs.racing.sim.neighbours import Neighbours, look_around
from envs.racing.sim.track import PLAYFIELD
from tests.envs.racing.driving import painted


@kernel
def _measure(cars, wheels, handle, before, action, laps):
    track = open_track(handle[0])
    view = look_around(cars, wheels, 0, track)
    return measure(cars[0], wheels[0], track, before, action, laps, view)


@kernel
def _remember(cars):
    return remember(cars[0])


@kernel
def _decide(cars, quantities, limits):
    return decide_ending(cars[0], quantities, limits)


class Tick:
    """One car on track 0, and what is measured of its latest tick."""

    def __init__(self):
        self.track = painted(0)
        self.cars, self.wheels = np.zeros(1, CAR), np.zeros((1, 4), WHEEL)
        self.cars["com_y"] = COM_Y  # its hull stands at the origin
        self.before = _remember(self.cars)

    def measure(self, action=(0.0, 0.0, 0.0), laps=1.0):
        handle = self.track.handle.reshape(1)
        return _measure(self.cars, self.wheels, handle, self.before, np.array(action), laps)


def test_tiles_and_arc_are_counted_from_the_tick_before():
    tick = Tick()
    tick.cars["tiles_visited"], tick.cars["tiles_missed"], tick.cars["arc"] = 5, 2, 12.0
    q = tick.measure()
    length = tick.track.track.length
    assert q.new_tiles == 5 / len(tick.track.track) and q.missed_tiles == 2
    assert q.arc_gained == 12.0 and q.lap_length == length and q.new_best
    tick.before = _remember(tick.cars)
    q = tick.measure()
    assert (q.new_tiles, q.missed_tiles, q.arc_gained, q.new_best) == (0.0, 0, 0.0, False)


def test_wheels_speed_and_controls():
    tick = Tick()
    tick.cars["speed"], tick.cars["yaw_rate"], tick.cars["steer_command"] = 40.0, -0.5, 0.25
    tick.before = _remember(tick.cars)
    tick.cars["speed"] = 38.0
    tick.wheels["on_road"] = [[1, 0, 1, 0]]
    q = tick.measure(action=(-0.25, 0.0, 0.75))
    assert (q.wheels_off, q.off_track) == (0.5, False)
    assert (q.speed, q.speed_before, q.yaw_rate) == (38.0, 40.0, -0.5)
    assert (q.steer, q.steer_change, q.brake) == (-0.25, 0.5, 0.75)
    tick.wheels["on_road"] = 0
    q = tick.measure()
    assert (q.wheels_off, q.off_track) == (1.0, True)


def test_the_corner_ahead_is_the_roads():
    tick = Tick()
    line, length = tick.track.track.centreline, tick.track.track.length
    tick.cars["s"] = s = 100.0
    arc = np.arange(len(line)) * length / len(line)
    expected = np.interp(s + 21, arc, line[:, 5]) - np.interp(s, arc, line[:, 5])
    assert tick.measure().corner_angle == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("laps", [0.0, 2.0], ids=["tiles", "arc"])
def test_the_finish_is_new_once(laps):
    tick = Tick()
    assert not tick.measure(laps=laps).at_finish
    tick.cars["tiles_visited"] = len(tick.track.track)
    tick.cars["arc"] = 2 * tick.track.track.length
    q = tick.measure(laps=laps)
    assert q.at_finish and q.finished
    tick.cars["finish_tick"] = 9
    q = tick.measure(laps=laps)
    assert q.at_finish and not q.finished


def test_the_first_reason_to_end_counts():
    tick = Tick()
    limits = make_limits(10, EndingConfig())
    assert _decide(tick.cars, tick.measure(), limits) == NOT_ENDED
    tick.cars["tick"] = 10
    assert _decide(tick.cars, tick.measure(), limits) == TIME_UP
    assert tick.cars["truncated"][0] and not tick.cars["terminated"][0]
    tick.cars["arc"] = tick.track.track.length
    assert _decide(tick.cars, tick.measure(), limits) == FINISHED
    assert tick.cars["terminated"][0] and not tick.cars["truncated"][0]
    tick.cars["com_x"] = PLAYFIELD + math.ulp(PLAYFIELD)
    q = tick.measure()
    assert q.beyond_playfield and _decide(tick.cars, q, limits) == LEFT_PLAYFIELD


def test_a_car_sees_nothing_of_its_neighbours_yet():
    assert Neighbours._fields == () and Tick().measure().neighbours == Neighbours()
