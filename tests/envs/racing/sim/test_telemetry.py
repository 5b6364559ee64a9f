"""Telemetry: one declaration, its units and its signs."""

import math

import numpy as np
import pytest

from common.telemetry import TELEMETRY
from envs.racing.sim.telemetry import COLUMN
from envs.racing.sim.track import PLAYFIELD
from tests.envs.racing.driving import engine_on, follow, idle, painted, place, put_at


def test_telemetry_has_its_units():
    engine = engine_on(painted(5))
    track = engine.tracks[0].track
    put_at(engine, 100.0, 2.0, speed=30.0)
    before = engine.telemetry()[0, 0].copy()
    engine.step(idle(engine))
    row = dict(zip(TELEMETRY, engine.telemetry()[0, 0], strict=True))
    assert row["speed"] == pytest.approx(30, abs=0.5)
    moved = math.hypot(row["x"] - before[8], row["y"] - before[9])
    assert moved == pytest.approx(30 / 50, abs=0.02)
    assert row["lateral_offset"] == pytest.approx(2.0, abs=0.1)
    assert row["off_track"] == 0
    assert row["progress"] == pytest.approx(row["progress_delta"] / track.length)
    place(engine, PLAYFIELD - 20, PLAYFIELD - 20, 1.0)
    engine.step(idle(engine))
    assert engine.telemetry()[0, 0, list(TELEMETRY).index("off_track")] == 1
    # Two wheels over the left edge.
    put_at(engine, 100.0, track.half_width + 0.1)
    engine.step(idle(engine))
    assert engine.telemetry()[0, 0, list(TELEMETRY).index("off_track")] in (0.5, 0.25)


def test_corner_angle_is_the_turn_of_the_road_ahead():
    for direction in ("ccw", "cw"):
        engine = engine_on(painted(0, direction))
        track = engine.tracks[0].track
        m = len(track.centreline)
        for s in np.linspace(0, track.length, 40, endpoint=False):
            put_at(engine, s)
            engine.step(idle(engine))
            here = engine.cars["s"][0, 0] / track.length * m
            tx, ty = track.centreline[round(here) % m, 2:4]
            ux, uy = track.centreline[round(here + 21 / track.length * m) % m, 2:4]
            expected = math.atan2(tx * uy - ty * ux, tx * ux + ty * uy)
            got = engine.telemetry()[0, 0, list(TELEMETRY).index("corner_angle")]
            assert got == pytest.approx(expected, abs=0.11)


def test_telemetry_stays_within_its_declared_bounds():
    engine = engine_on(painted(5), painted(2))
    bounds = [(field.low, field.high) for field in TELEMETRY.values()]
    low = np.array([-np.inf if low is None else low for low, _ in bounds])
    high = np.array([np.inf if high is None else high for _, high in bounds])
    for _ in range(200):
        engine.step(follow(engine, 90.0))
        table = engine.telemetry()
        assert table.dtype == np.float32 and table.shape == (2, 1, len(TELEMETRY))
        assert (table >= low).all() and (table <= high).all()


def test_every_declared_field_is_measured():
    engine = engine_on(painted(5))
    engine.telemetry()[:] = np.nan
    assert np.isfinite(engine.telemetry()).all()
    assert COLUMN._fields == tuple(TELEMETRY)
