"""Camera geometry and registration against frames that the simulator drew."""

import numpy as np
import pytest

from probes import metrics
from probes.camera import PictureCamera
from probes.registration import register
from replay import DataSet
from rssm.motion import Motion, compose, motion_between
from tests.probes.recorded import record


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    root = tmp_path_factory.mktemp("data")
    record(root, "PROBE", "probe")
    return DataSet(root, "PROBE", "probe")


@pytest.fixture(scope="module")
def camera(data):
    return PictureCamera.of(data.attributes.camera, 96)


def pose(data):
    return tuple(data.column(f"telemetry/{name}") for name in ("x", "y", "heading"))


def pairs(data, apart):
    """Rows of `apart` steps within an episode, the fastest turning first."""
    rows = np.concatenate(
        [np.arange(e["start"], e["start"] + e["length"] - apart) for e in data.episodes]
    )
    turned = np.abs(motion_between(*pose(data), rows, rows + apart).yaw)
    return rows[np.argsort(-turned)]


def frame(data, row):
    return data.window(int(row), 1, ["observation"])["observation"][0].astype(np.float32) / 255


def test_the_true_motion_turns_one_frame_into_the_other(data, camera):
    gains = []
    for row in pairs(data, 10)[:40:4]:
        moved = motion_between(*pose(data), row, row + 10)
        before, after = frame(data, row), frame(data, row + 10)
        warped, known = camera.warp(before, Motion(*(float(v) for v in moved)))
        assert 0.4 < known.mean() < 0.9
        error = np.square(warped - after).mean(-1)[known].mean()
        still = np.square(before - after).mean(-1)[known].mean()
        gains.append(10 * np.log10(still / error))
        assert -10 * np.log10(error) > 27
    assert np.median(gains) > 8


def test_registration_reads_the_motion_from_frames_alone(data, camera):
    errors = []
    for row in pairs(data, 5)[:60:3]:
        true = motion_between(*pose(data), row, row + 5)
        before, after = (metrics.grey(frame(data, r)) for r in (row, row + 5))
        found = register(camera, before, after)
        errors.append((abs(found.motion.yaw - true.yaw), abs(found.motion.forward - true.forward)))
    yaw, forward = np.median(errors, axis=0)
    assert yaw < np.radians(0.4)
    assert forward < 0.3
    assert np.max(errors, axis=0)[1] < 1


def test_ground_is_neither_car_nor_indicators(camera):
    ground = camera.ground
    assert not ground[84:].any() and not ground[72, 48] and not ground[68, 48]
    assert ground[:50].all() and ground[72, 40] and ground[72, 56]


def test_composed_steps_are_the_whole_way(data):
    row = int(data.episodes[0]["start"])
    rows = np.arange(row, row + 40)
    steps = compose(motion_between(*pose(data), rows[:-1], rows[1:]))
    whole = motion_between(*pose(data), np.full(39, row), rows[1:])
    np.testing.assert_allclose(steps.forward, whole.forward, atol=1e-3)
    np.testing.assert_allclose(steps.lateral, whole.lateral, atol=1e-3)
    np.testing.assert_allclose(steps.yaw, whole.yaw, atol=1e-5)
