"""Progress is arc length driven along the road, and nothing else earns it."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.racing import RewardConfig
from envs.racing.pixels.painted_track import PaintedTrack
from envs.racing.sim.dynamics import DT, MAX_SPEED
from envs.racing.sim.progress import FULL_CREDIT, NO_CREDIT
from envs.racing.sim.track import build_track
from tests.envs.racing.driving import at, carry, engine_on, follow, idle, painted, put_at

COURSES = {
    "carracing-ccw": (0, "ccw", "carracing"),
    "carracing-cw": (0, "cw", "carracing"),
    "carracing-7": (7, "ccw", "carracing"),
    "hairpins-ccw": (4, "ccw", "procedural", 1.0),
    "hairpins-cw": (4, "cw", "procedural", 1.0),
    "sweeping": (1, "ccw", "procedural", 0.0),
}
every_course = pytest.mark.parametrize("course", COURSES.values(), ids=COURSES)
STEP = 0.8
"""Units per tick at which cars are carried: 40 units/s."""


def arc(engine):
    return float(engine.cars["arc"][0, 0])


def start(course, s=0.0, lateral=0.0):
    engine = engine_on(painted(*course))
    put_at(engine, s, lateral)
    return engine, engine.tracks[0].track


def path_along(track, begin, end, lateral=0.0):
    n = max(2, round(abs(end - begin) / STEP))
    return at(track, np.linspace(begin, end, n), lateral)[:2]


@every_course
@pytest.mark.parametrize("share", [0.0, 0.6, -0.6])
def test_a_lap_along_the_road_is_one(course, share):
    engine, track = start(course, lateral=share * painted(*course).track.half_width)
    carry(engine, *path_along(track, 0, track.length, share * track.half_width))
    assert engine.telemetry()[0, 0, 1] == pytest.approx(1.0, abs=1e-3)
    carry(engine, *path_along(track, 0, track.length, share * track.half_width))
    assert engine.telemetry()[0, 0, 1] == pytest.approx(2.0, abs=2e-3)


@every_course
def test_reversing_loses_what_was_gained(course):
    engine, track = start(course)
    carry(engine, *path_along(track, 0, 150))
    assert arc(engine) == pytest.approx(150, abs=0.01)
    gains = carry(engine, *path_along(track, 150, 0))
    assert (gains < 1e-9).all()
    assert arc(engine) == pytest.approx(0, abs=0.01)
    carry(engine, *path_along(track, 0, -100))
    assert arc(engine) == pytest.approx(-100, abs=0.01)


@every_course
def test_crossing_the_start_line_again_and_again_gains_nothing(course):
    engine, track = start(course)
    for _ in range(30):
        carry(engine, *path_along(track, 0, 12))
        carry(engine, *path_along(track, 12, -12))
        carry(engine, *path_along(track, -12, 0))
    assert abs(arc(engine)) < 0.01
    assert engine.cars["best_arc"][0, 0] < 12.1
    assert engine.cars["finish_tick"][0, 0] == 0


@every_course
def test_a_lap_backwards_never_counts(course):
    engine, track = start(course)
    carry(engine, *path_along(track, 0, -2.5 * track.length))
    assert arc(engine) == pytest.approx(-2.5 * track.length, rel=1e-3)
    assert engine.cars["best_arc"][0, 0] < 1


def chord(track, begin, end):
    """A straight way across the infield, between two places on the road."""
    (x0, y0, _), (x1, y1, _) = at(track, begin), at(track, end)
    n = max(2, math.ceil(math.hypot(x1 - x0, y1 - y0) / STEP))
    t = np.linspace(0, 1, n)
    return x0 + t * (x1 - x0), y0 + t * (y1 - y0)


def lateral_of(track, x, y):
    """Distance from the centreline, by brute force."""
    return np.hypot(x - track.centreline[:, 0], y - track.centreline[:, 1]).min()


@every_course
@pytest.mark.parametrize("begin", [0.05, 0.3, 0.55])
@pytest.mark.parametrize("skip", [0.2, 0.33, 0.45])
def test_cutting_across_the_infield_earns_only_its_way_along_the_road(course, begin, skip):
    engine, track = start(course, begin * painted(*course).track.length)
    ahead = (begin + skip) * track.length
    xs, ys = chord(track, begin * track.length, ahead)
    carry(engine, xs, ys)
    # A unit driven near the road may earn 1/(1 - curvature x half-width) units at a bend's edge.
    laterals = np.array([lateral_of(track, x, y) for x, y in zip(xs, ys, strict=True)])
    near = (laterals < NO_CREDIT * track.half_width).sum()
    stretch = 1 / (1 - np.abs(track.centreline[:, 4]).max() * track.half_width)
    most = near * STEP * stretch
    assert arc(engine) <= most + 1e-6
    cut = arc(engine)
    # The road ahead counts as usual, and the lap is not complete where it began.
    carry(engine, *path_along(track, ahead, ahead + 60))
    assert arc(engine) - cut == pytest.approx(60, abs=8)
    carry(engine, *path_along(track, ahead + 60, track.length * (1 + begin)))
    assert arc(engine) <= (1 - skip) * track.length + most + 1


@every_course
def test_coming_back_onto_the_road_behind_loses_the_whole_difference(course):
    engine, track = start(course)
    carry(engine, *path_along(track, 0, 0.45 * track.length))
    carry(engine, *chord(track, 0.45 * track.length, 0.1 * track.length))
    carry(engine, *path_along(track, 0.1 * track.length, 0.15 * track.length))
    assert arc(engine) <= 0.15 * track.length + 1


@every_course
def test_a_jump_onto_the_road_elsewhere_gains_nothing(course):
    for begin in np.arange(0, 1, 0.1):
        for jump in (0.15, 0.3, 0.45):
            engine, track = start(course, begin * painted(*course).track.length)
            x, y, _ = at(track, (begin + jump) * track.length)
            # Along one straight a jump is only fast driving; cars cannot, as they have a top speed.
            if abs(lateral_to(engine, x, y)) < 3 * track.half_width:
                continue
            gains = carry(engine, [x] * 20, [y] * 20)
            assert gains.sum() < 1e-6
            x, y, _ = at(track, begin * track.length)
            carry(engine, [x] * 20, [y] * 20)
            assert arc(engine) <= -jump * track.length + 1, "and jumping back loses it"


def lateral_to(engine, x, y):
    """Offset of a place from the tangent of the road where the car is."""
    cx, cy, angle = at(engine.tracks[0].track, engine.cars["s"][0, 0])
    return (x - cx) * math.cos(angle) + (y - cy) * math.sin(angle)


@every_course
@pytest.mark.parametrize("lateral", [0.0, 0.9, -0.9, 1.4, -1.4, 2.5, -2.5])
@pytest.mark.parametrize("radius", [2.0, 7.0])
def test_donuts_gain_nothing(course, lateral, radius):
    for share in (0.0, 0.37, 0.71):
        engine, track = start(course, share * painted(*course).track.length)
        x, y, _ = at(track, share * track.length, lateral * track.half_width)
        angle_step = 2 * math.pi / (2 * math.pi * radius / STEP)
        for sign in (1, -1):
            phase = np.arange(0, 2 * math.pi * 5, angle_step) * sign
            phase = np.append(phase, 0.0)
            xs, ys = x + radius * np.cos(phase), y + radius * np.sin(phase)
            carry(engine, [xs[0]] * 10, [ys[0]] * 10)
            before = arc(engine)
            carry(engine, xs, ys)
            assert arc(engine) - before < 0.02


@every_course
def test_on_the_road_donuts_lose_nothing_either(course):
    engine, track = start(course)
    x, y, _ = at(track, 0.0)
    phase = np.linspace(0, 10 * math.pi, 400)
    carry(engine, x + 2 * np.cos(phase), y + 2 * np.sin(phase))
    assert arc(engine) == pytest.approx(2 * math.cos(-at(track, 0.0)[2] - math.pi / 2), abs=2.2)
    assert abs(arc(engine)) < 2.2


@every_course
def test_circling_in_the_infield_makes_no_laps(course):
    engine, track = start(course)
    centre = track.centreline[:, :2].mean(0)
    angle = math.atan2(*(at(track, 0.0)[1::-1] - centre[::-1]))
    sign = 1 if track.direction == "ccw" else -1
    phase = angle + sign * np.linspace(0, 2 * math.pi * 6, 1500)
    carry(engine, centre[0] + 12 * np.cos(phase), centre[1] + 12 * np.sin(phase))
    assert arc(engine) < 2 * track.half_width
    assert engine.cars["finish_tick"][0, 0] == 0


@settings(max_examples=60)
@given(
    st.sampled_from(sorted(COURSES)),
    st.floats(0, 1),
    st.floats(-2.5, 2.5),
    st.lists(st.tuples(st.floats(-15, 15), st.floats(0, 6.28)), min_size=1, max_size=4),
)
def test_any_closed_way_near_the_road_gains_nothing(name, share, lateral, waves):
    engine, track = start(COURSES[name], share * painted(*COURSES[name]).track.length)
    x, y, _ = at(track, share * track.length, lateral * track.half_width)
    t = np.linspace(0, 2 * math.pi, 401)
    dx = sum(a * np.sin((k + 1) * t + p) for k, (a, p) in enumerate(waves)) / len(waves)
    dy = sum(a * np.cos((k + 1) * t - p) for k, (a, p) in enumerate(waves)) / len(waves)
    xs, ys = x + dx, y + dy
    # Drive from the road to where the way begins, so that the foot follows, then around twice.
    lead = np.linspace(0, 1, 60)[:-1]
    x0, y0, _ = at(track, share * track.length)
    carry(engine, x0 + lead * (xs[0] - x0), y0 + lead * (ys[0] - y0))
    carry(engine, xs, ys)
    before = arc(engine)
    carry(engine, xs, ys)
    assert arc(engine) - before < 0.05


@every_course
def test_the_gain_of_driving_is_the_integral_of_speed_along_the_road(course):
    engine = engine_on(painted(*course))
    track = engine.tracks[0].track
    sums, worst, last, jumps = 0.0, 0.0, None, []
    for tick in range(900):
        before = engine.telemetry()[0, 0].copy()
        # Weaving from edge to edge.
        engine.step(follow(engine, 35.0, 0.8 * track.half_width * math.sin(tick / 40)))
        after = engine.telemetry()[0, 0].copy()
        gain = float(after[2])
        sums += gain
        s = 0.5 * (engine.cars["s"][0, 0] + engine.cars["s"][0, 0] - gain)
        line = np.arange(len(track.centreline) + 1) * track.length / len(track.centreline)
        curvature = np.interp(s % track.length, line, np.r_[track.centreline[:, 4], 0][: len(line)])
        _, _, angle = at(track, s)
        dx, dy = after[8] - before[8], after[9] - before[9]
        along = -math.sin(angle) * dx + math.cos(angle) * dy
        lateral = 0.5 * (float(before[7]) + float(after[7]))
        if abs(lateral) < track.half_width and 0.01 < s / track.length < 0.99:
            expected = along / (1 - curvature * lateral)
            worst = max(worst, abs(gain - expected))
        if last is not None:
            jumps.append(abs(gain - last))
        last = gain
    assert worst < 0.02
    assert max(jumps) < 0.2, "progress_delta jumps"
    assert sums / track.length == pytest.approx(after[1], abs=1e-5)
    assert sums > 300


@pytest.mark.parametrize("repeat", [1, 4])
def test_the_deltas_of_an_episode_sum_to_its_progress(repeat):
    engine = engine_on(painted(0), action_repeat=repeat)
    total = 0.0
    for _ in range(600 // repeat):
        engine.step(follow(engine, 60.0, 9.0))
        total += float(engine.telemetry()[0, 0, 2])
    assert total / engine.tracks[0].track.length == pytest.approx(
        float(engine.telemetry()[0, 0, 1]), abs=1e-5
    )


@pytest.mark.parametrize("lateral", [0.0, 1.2, FULL_CREDIT + 0.25, NO_CREDIT + 0.1])
@pytest.mark.parametrize("side", [1, -1])
def test_credit_fades_off_the_road(lateral, side):
    """On a straight: full up to half a road's width off the edge, none beyond a whole one."""
    engine, track = start(COURSES["sweeping"])
    straight = np.abs(track.centreline[:, 4])
    window = 60
    calm = np.convolve(np.r_[straight, straight[:window]], np.ones(window), "valid")
    s = np.argmin(calm) * track.length / len(straight) + 10
    offset = side * lateral * track.half_width
    put_at(engine, s, offset)
    carry(engine, *path_along(track, s, s + 30, offset))
    full = min(max((NO_CREDIT - lateral) / (NO_CREDIT - FULL_CREDIT), 0), 1)
    # Almost straight: what the bend adds or takes is below a fifth.
    assert arc(engine) == pytest.approx(30 * full, rel=0.2, abs=1e-9)
    carry(engine, *path_along(track, s + 30, s, offset))
    assert arc(engine) == pytest.approx(30 * full - 30, rel=0.2, abs=6)


@pytest.mark.parametrize("lateral", [-1.3, 0.0, 0.7, 1.0, 1.2, 1.45])
def test_cutting_further_into_a_bend_than_its_edge_earns_no_more(lateral):
    radius = 30.0
    angle = np.arange(54) * 2 * math.pi / 54
    circle = np.column_stack([angle, radius * np.cos(angle), radius * np.sin(angle)])
    engine = engine_on(PaintedTrack(build_track(circle)))
    track = engine.tracks[0].track
    curvature = track.centreline[:, 4].mean()
    put_at(engine, 5.0, lateral * track.half_width)
    xs, ys = path_along(track, 5.0, 45.0, lateral * track.half_width)
    carry(engine, xs, ys)
    distance = np.hypot(np.diff(xs), np.diff(ys)).sum()
    rate = 1 / (1 - curvature * min(lateral, 1.0) * track.half_width)
    assert arc(engine) / distance == pytest.approx(rate, rel=0.02)


@every_course
def test_a_real_lap_finishes_where_it_began(course):
    engine = engine_on(painted(*course), laps=1, max_ticks=3000)
    track = engine.tracks[0].track
    for _ in range(3000):
        engine.step(follow(engine, 45.0))
        if not engine.cars["active"][0, 0]:
            break
    car = engine.cars[0, 0]
    assert car["terminated"] and car["finish_tick"] == car["tick"]
    assert 1 <= car["arc"] / track.length < 1 + MAX_SPEED * DT / track.length
    assert car["tiles_visited"] > 0.9 * len(track)
    here, there = at(track, 0.0), at(track, car["s"])
    assert math.hypot(here[0] - there[0], here[1] - there[1]) < 3


def test_standing_still_keeps_the_foot():
    engine, _ = start(COURSES["carracing-7"], 100.0, 3.0)
    for _ in range(20):
        engine.step(idle(engine))
    assert arc(engine) == pytest.approx(0, abs=1e-6)
    assert engine.cars["s"][0, 0] == pytest.approx(100.0, abs=1e-3)
    assert engine.cars["lateral"][0, 0] == pytest.approx(3.0, abs=0.05)


@pytest.mark.parametrize("direction", ["ccw", "cw"])
def test_tiles_left_behind_untouched_are_counted_once(direction):
    engine = engine_on(painted(0, direction), reward=RewardConfig(missed_tile=-8.0))
    track, car = engine.tracks[0].track, engine.cars[0, 0]
    # Beside the road for 30 units, and back onto it by a smooth curve on either side.
    s = np.arange(0, 1.2 * track.length, 1.0)
    bump = np.interp(s, [80, 100, 130, 150], [0, 1, 1, 0])
    lap = s < track.length
    x, y, _ = at(track, s, (track.half_width + 3) * np.where(lap, bump, 0.0))
    carry(engine, x[s < 90], y[s < 90])
    assert car["tiles_missed"] == 0
    assert car["tiles_passed"] == pytest.approx(90 / track.length * len(track), abs=4)
    carry(engine, x[lap][90:], y[lap][90:])
    missed = len(track) - car["tiles_visited"]
    assert 30 / 3.5 - 2 <= missed <= 45 / 3.5
    carry(engine, x[~lap], y[~lap])
    assert car["tiles_passed"] == len(track)
    assert car["tiles_missed"] == missed, "the second lap is not counted"


def test_a_missed_tile_is_paid_when_it_is_left_behind():
    engine = engine_on(painted(0), reward=RewardConfig(progress=0, time=0, missed_tile=-8.0))
    track = engine.tracks[0].track
    s = np.arange(0, 60.0, 1.0)
    x, y, _ = at(track, s, np.interp(s, [0, 20], [0, track.half_width + 3]))
    paid = 0.0
    for index in range(1, len(s)):
        carry(engine, x[index - 1 : index + 1], y[index - 1 : index + 1])
        paid += engine.rewards[0, 0]
    assert engine.cars["tiles_missed"][0, 0] > 5
    assert paid == -8 * engine.cars["tiles_missed"][0, 0]
