"""What the pictures for people show: the right things in the right places."""

import math

import numpy as np
import pytest

from envs.racing.show.view import (
    CAR_HEIGHT,
    CAR_RGB,
    UNITS_ACROSS,
    car_position,
    render_map,
    render_view,
)
from envs.racing.sim.track import HALF_WIDTH, KERB_WIDTH, PLAYFIELD
from tests.envs.racing.driving import at, engine_on, painted, place

SIZE = 600
ZOOM = SIZE / UNITS_ACROSS
CAR_ROW, CAR_COLUMN = (1 - CAR_HEIGHT) * SIZE, SIZE / 2
SEED = 3


@pytest.fixture
def engine():
    return engine_on(painted(SEED), num_agents=2)


def view(engine, **options):
    return render_view(engine.tracks[0].track, engine.cars[0], engine.wheels[0], **options)


def patch(picture, right, ahead, radius=3, zoom=ZOOM):
    """Mean colour around a point `right` and `ahead` units from the car."""
    row, column = round(CAR_ROW - ahead * zoom), round(CAR_COLUMN + right * zoom)
    return picture[row - radius : row + radius + 1, column - radius : column + radius + 1].mean(
        (0, 1)
    )


def is_red(rgb):
    return rgb[0] > 150 and rgb[1] < 70 and rgb[2] < 70


def is_grey(rgb):
    return np.ptp(rgb) < 12 and 70 < rgb.mean() < 120


def is_green(rgb):
    return rgb[1] > rgb[0] + 40 and rgb[1] > rgb[2] + 40


def put(engine, s, lateral=0.0, yaw=0.0, agent=0):
    x, y, angle = at(engine.tracks[0].track, s, lateral)
    place(engine, float(x), float(y), float(angle) + yaw, agent=agent)


def relative(engine, point):
    """(right, ahead) of the first car, in units."""
    offset = point - car_position(engine.cars[0, 0])
    angle = engine.cars[0, 0]["angle"]
    right = math.cos(angle) * offset[0] + math.sin(angle) * offset[1]
    return right, math.cos(angle) * offset[1] - math.sin(angle) * offset[0]


def straight(track):
    """Arc position in the middle of the longest stretch with little curvature."""
    bent = np.abs(track.centreline[:, 4]) > 0.004
    best, run, end = 0, 0, 0
    for i, crooked in enumerate(bent):
        run = 0 if crooked else run + 1
        if run > best:
            best, end = run, i
    return (end - best / 2) * track.length / len(bent)


def test_the_followed_car_on_its_road_between_grass(engine):
    put(engine, straight(engine.tracks[0].track))
    put(engine, 0.0, agent=1)
    picture = view(engine)
    assert picture.shape == (SIZE, SIZE, 3) and picture.dtype == np.uint8
    assert is_red(patch(picture, 0.5, -0.6, 1))
    assert is_grey(patch(picture, 0, 9)) and is_grey(patch(picture, HALF_WIDTH - 1.5, 5))
    assert (
        patch(picture, HALF_WIDTH, 0, 1).min() > 190
        and patch(picture, -HALF_WIDTH, 0, 1).min() > 190
    )
    assert is_green(patch(picture, HALF_WIDTH + 3, 5)) and is_green(
        patch(picture, -HALF_WIDTH - 3, 5)
    )


@pytest.mark.parametrize(
    ("width", "height", "zoom"), [(944, 720, None), (300, 500, None), (200, 200, 20.0)]
)
def test_any_size_and_zoom(engine, width, height, zoom):
    put(engine, straight(engine.tracks[0].track))
    picture = view(engine, width=width, height=height, zoom=zoom)
    assert picture.shape == (height, width, 3)
    scale = zoom or min(width, height) / UNITS_ACROSS
    row = round((1 - CAR_HEIGHT) * height + 0.6 * scale)
    red = [is_red(rgb) for rgb in picture[row].astype(float)]
    columns = np.flatnonzero(red)
    assert abs(columns.mean() - width / 2) < 1.5
    # The body is two units wide there, less the engine cover in its middle.
    assert np.ptp(columns) == pytest.approx(2 * scale - 1, abs=2)


def test_the_picture_turns_with_the_car(engine):
    put(engine, straight(engine.tracks[0].track), yaw=math.pi / 2)
    picture = view(engine)
    assert is_red(patch(picture, 0.5, -0.6, 1))
    assert is_green(patch(picture, 0, HALF_WIDTH + 3)) and is_green(
        patch(picture, 0, -HALF_WIDTH - 3)
    )
    assert is_grey(patch(picture, 12, 0)) and is_grey(patch(picture, -12, 0))


def test_rivals_are_where_they_are_and_in_their_colours(engine):
    s = straight(engine.tracks[0].track)
    put(engine, s)
    put(engine, s + 12, 3.0, agent=1)
    right, ahead = relative(engine, car_position(engine.cars[0, 1]))
    assert ahead == pytest.approx(12, abs=0.5) and right == pytest.approx(-3, abs=0.5)
    body = (0.6, -0.6)
    first = view(engine)
    np.testing.assert_allclose(
        patch(first, right + body[0], ahead + body[1], 1), CAR_RGB[1], atol=12
    )
    second = view(engine, agent=1)
    np.testing.assert_allclose(patch(second, *body, 1), CAR_RGB[1], atol=12)
    np.testing.assert_allclose(
        patch(second, body[0] - right, body[1] - ahead, 1), CAR_RGB[0], atol=12
    )


def test_front_wheels_turn_and_wheels_roll(engine):
    put(engine, straight(engine.tracks[0].track))
    still = view(engine, zoom=40).astype(int)
    engine.cars["steer"][0, 0] = 0.4
    steered = view(engine, zoom=40).astype(int)
    rows, columns = np.nonzero(np.abs(steered - still).max(2) > 30)
    ahead, right = (CAR_ROW - rows) / 40, (columns - CAR_COLUMN) / 40
    assert len(rows) > 100
    assert ahead.min() > 0.5 and ahead.max() < 2.7 and np.abs(right).max() < 2.0
    assert (right > 0.5).any() and (right < -0.5).any()
    engine.cars["steer"][0, 0] = 0.0
    engine.wheels["phase"][0, 0, 2] = 1.5
    rolled = np.abs(view(engine, zoom=40).astype(int) - still).max(2) > 30
    rows, columns = np.nonzero(rolled)
    assert len(rows) > 50 and (rows > CAR_ROW).all() and (columns < CAR_COLUMN).all()


def test_driven_tiles_are_darker(engine):
    track = engine.tracks[0].track
    s = straight(track)
    put(engine, s)
    fresh = patch(view(engine), 2.5, 6)
    touched = np.abs((track.tile_s - s + track.length / 2) % track.length - track.length / 2) < 30
    visited = patch(view(engine, painted=touched), 2.5, 6)
    assert is_grey(fresh) and is_grey(visited) and visited.mean() < fresh.mean() - 3
    np.testing.assert_array_equal(view(engine, painted=np.zeros(len(track), bool)), view(engine))


def test_kerbs_are_red_and_white(engine):
    track = engine.tracks[0].track
    put(engine, 0.0, agent=1)
    for white in (True, False):
        stone = np.flatnonzero(track.kerb_white == white)[2]
        x, y = track.kerbs[stone].mean(0)
        place(engine, x, y, 0.0)
        # Beside the stone, so that the car does not cover it.
        engine.cars["com_x"][0, 0] += 10.0
        rgb = patch(view(engine), -10.0, 0.0, 2)
        assert rgb.min() > 200 if white else is_red(rgb)
    assert np.linalg.norm(track.kerbs[stone][0] - track.kerbs[stone][1]) == pytest.approx(
        KERB_WIDTH
    )


def test_the_start_line_is_black_and_white_at_the_start(engine):
    put(engine, -6.0)
    put(engine, 60.0, agent=1)
    ahead = relative(engine, engine.tracks[0].track.points[0, 1:])[1]
    row, reach = round(CAR_ROW - (ahead + 0.4) * ZOOM), round(6 * ZOOM)
    line = view(engine)[row, round(CAR_COLUMN) - reach : round(CAR_COLUMN) + reach]
    assert (line.min(1) > 190).sum() > 25 and (line.max(1) < 90).sum() > 25
    put(engine, -6.0, yaw=math.pi)
    behind = view(engine)[: round(CAR_ROW - 8 * ZOOM)]
    assert (behind.max(2) < 60).sum() == 0


def test_beyond_the_playfield_it_is_dark(engine):
    place(engine, PLAYFIELD - 5, 0.0, 0.0)
    picture = view(engine)
    assert is_green(patch(picture, 3, 10)) and patch(picture, 8, 10).max() < 70
    place(engine, PLAYFIELD + 200, 0.0, 0.0)
    lost = view(engine)
    assert is_red(patch(lost, 0.5, -0.6, 1)) and patch(lost, 20, 20).max() < 70


def test_grass_squares_are_carracings(engine):
    place(engine, -PLAYFIELD + 60.0, -PLAYFIELD + 60.0, 0.0)
    picture = view(engine).astype(float)
    rows, columns = np.mgrid[0:SIZE, 0:SIZE]
    x = -PLAYFIELD + 60.0 + (columns + 0.5 - CAR_COLUMN) / ZOOM
    y = -PLAYFIELD + 60.0 + (CAR_ROW - rows - 0.5) / ZOOM
    cell = PLAYFIELD / 20
    light = (np.floor(x / cell) % 2 == 0) & (np.floor(y / cell) % 2 == 0)
    away = np.hypot(columns - CAR_COLUMN, rows - CAR_ROW) > 60
    green = picture[..., 1]
    assert green[light & away].mean() > green[~light & away].mean() + 8


def test_drawing_changes_nothing(engine):
    before = engine.snapshot()
    one, two = view(engine), view(engine)
    np.testing.assert_array_equal(one, two)
    for name, array in engine.snapshot().items():
        np.testing.assert_array_equal(array, before[name])


def test_the_map_has_every_car_in_its_place(engine):
    track = engine.tracks[0].track
    put(engine, 0.25 * track.length)
    put(engine, 0.75 * track.length, agent=1)
    picture = render_map(track, engine.cars[0], (240, 160))
    assert picture.shape == (160, 240, 3) and picture.dtype == np.uint8
    low, high = track.centreline[:, :2].min(0), track.centreline[:, :2].max(0)
    scale = min((240 - 18) / (high - low)[0], (160 - 18) / (high - low)[1])
    around = []
    for agent in (0, 1):
        right, up = (car_position(engine.cars[0, agent]) - (low + high) / 2) * scale
        row, column = round(80 - up - 0.5), round(120 + right - 0.5)
        np.testing.assert_allclose(picture[row, column], CAR_RGB[agent], atol=6)
        around.append(picture[row - 7 : row + 8, column - 7 : column + 8].min(2) > 200)
    # The followed car has a bright rim, the other has none.
    assert around[0].sum() > 20 and around[1].sum() == 0
    assert render_map(track, engine.cars[0], 100).shape == (100, 100, 3)
