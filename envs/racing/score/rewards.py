"""Named reward terms and the ways an episode ends, settled once per engine tick.

Every term is a coefficient of `RewardConfig` times a quantity in native units, and is logged on its
own; the reward of a step is the sum of its terms over the step's ticks. CarRacing-v3's return is
accumulated beside it whatever the configuration, so that differently shaped runs compare.

Known fault kept for parity (preset carracing): the reference's `lap_complete_percent` does nothing,
because tile 0 is first touched at reset; its lap ends only when every tile has been touched. The
right value, laps by arc length, is `progress` in every info.
"""

from __future__ import annotations

import math
from collections import namedtuple
from dataclasses import astuple, fields

from envs.racing.config import RewardConfig
from envs.racing.sim.kernel import kernel
from envs.racing.sim.track import LOOKAHEAD, PLAYFIELD

TERMS = (
    "tile",
    "missed_tile",
    "progress",
    "finish",
    "time",
    "off_track",
    "wheels_off",
    "corner_entry",
    "apex_decel",
    "steer_smoothness",
    "steer_magnitude",
    "yaw_rate",
    "brake",
    "idle",
    "stuck",
    "no_progress",
    "playfield",
)
(
    TILE,
    MISSED_TILE,
    PROGRESS,
    FINISH,
    TIME,
    OFF_TRACK,
    WHEELS_OFF,
    CORNER_ENTRY,
    APEX_DECEL,
    STEER_SMOOTHNESS,
    STEER_MAGNITUDE,
    YAW_RATE,
    BRAKE,
    IDLE,
    STUCK,
    NO_PROGRESS,
    LEFT_PLAYFIELD,
) = range(len(TERMS))

Coefficients = namedtuple("Coefficients", [field.name for field in fields(RewardConfig)])

Rules = namedtuple("Rules", "race laps max_ticks end_at_playfield end_at_finish")
"""race: bool, the finish is `laps` by arc length (else every tile touched)."""


def coefficients(config: RewardConfig) -> Coefficients:
    """The configuration as floats that a kernel takes."""
    return Coefficients(*(float(value) for value in astuple(config)))


@kernel
def heading(track, s):
    """Unwrapped heading of the centreline at s >= 0 (linear between samples)."""
    at = s * track.samples / track.length
    j = int(math.floor(at))
    t = at - j
    a = track.centreline[j % track.samples, 5] + track.turn * (j // track.samples)
    k = j + 1
    b = track.centreline[k % track.samples, 5] + track.turn * (k // track.samples)
    return a + t * (b - a)


@kernel
def corner_angle(track, s):
    """Signed heading change of the centreline over the next LOOKAHEAD units."""
    return heading(track, s + LOOKAHEAD) - heading(track, s)


@kernel
def settle(
    car, wheels, track, k, rules, steer, brake, speed_before, arc_before, missed, x, y, terms
):
    """Pay one tick, count what the metrics need, and decide whether the episode ends.

    Args:
        missed: tiles that the car has driven past in this tick without ever touching them.
        terms: (len(TERMS),) float64, added to.
    """
    car.tick += 1
    tiles = (car.tiles_visited - car.tiles_paid) / track.count
    car.tiles_paid = car.tiles_visited
    wheels_off = 0
    for i in range(4):
        wheels_off += not wheels[i].on_road
    off = wheels_off == 4
    car.off_ticks += off
    car.off_run = car.off_run + 1 if off else 0
    car.slow_run = car.slow_run + 1 if car.speed < k.stuck_speed else 0
    if car.arc > car.best_arc:
        car.best_arc = car.arc
        car.stale_run = 0
    else:
        car.stale_run += 1
    jerk = min(abs(steer - car.steer_command), k.steer_smoothness_cap)
    car.steer_command = steer
    car.speed_sum += car.speed
    car.steer_sum += steer
    car.steer_square_sum += steer * steer

    if rules.end_at_playfield and (abs(x) > PLAYFIELD or abs(y) > PLAYFIELD):
        # The reference replaces this tick's whole reward.
        car.terminated = 1
        terms[LEFT_PLAYFIELD] += k.playfield
        car.episode_return += k.playfield
        car.native_return -= 100.0
        return

    car.native_return += 1000.0 * tiles - 0.1
    before = 0.0
    for i in range(len(terms)):
        before += terms[i]
    terms[TILE] += k.tile * tiles
    terms[MISSED_TILE] += k.missed_tile * missed
    terms[PROGRESS] += k.progress * (car.arc - arc_before) / track.length
    terms[TIME] += k.time
    if off:
        terms[OFF_TRACK] += k.off_track
    terms[WHEELS_OFF] += k.wheels_off * (wheels_off / 4)
    wanted = k.corner_entry != 0.0 or k.apex_decel != 0.0
    if wanted and abs(corner_angle(track, car.s)) > k.corner_threshold:
        excess = (car.speed - k.corner_target_speed) / k.corner_target_speed
        terms[CORNER_ENTRY] += k.corner_entry * max(excess, 0.0)
        lost = min(max(speed_before - car.speed, 0.0), k.apex_decel_cap)
        terms[APEX_DECEL] += k.apex_decel * lost
    terms[STEER_SMOOTHNESS] += k.steer_smoothness * jerk
    terms[STEER_MAGNITUDE] += k.steer_magnitude * abs(steer)
    terms[YAW_RATE] += k.yaw_rate * abs(car.yaw_rate)
    terms[BRAKE] += k.brake * brake
    if car.speed < k.idle_speed:
        terms[IDLE] += k.idle

    if rules.race:
        finished = car.arc >= rules.laps * track.length
    else:
        finished = car.tiles_visited == track.count
    if finished and car.finish_tick == 0:
        car.finish_tick = car.tick
        terms[FINISH] += k.finish
    if finished and rules.end_at_finish:
        car.terminated = 1
    elif k.off_track_limit > 0 and car.off_run >= k.off_track_limit:
        car.terminated = 1
        terms[OFF_TRACK] += k.off_track_end
    elif k.stuck_limit > 0 and car.slow_run >= k.stuck_limit:
        car.terminated = 1
        terms[STUCK] += k.stuck
    elif k.no_progress_limit > 0 and car.stale_run >= k.no_progress_limit:
        car.terminated = 1
        terms[NO_PROGRESS] += k.no_progress
    after = 0.0
    for i in range(len(terms)):
        after += terms[i]
    car.episode_return += after - before
    if not car.terminated and car.tick >= rules.max_ticks:
        car.truncated = 1
