"""The engine plays CarRacing-v3: compared with the real one, at a size that a test suite affords.

`scripts/parity.py` measures the same at full size for experiments/records/parity.json.
"""

import numpy as np
import pytest

pytest.importorskip("Box2D", reason="needs the extra `parity`")

from envs.racing.reference import parity
from envs.racing.reference.drive import make_reference

pytestmark = pytest.mark.parity


@pytest.fixture(scope="module")
def env():
    return make_reference()


def test_tracks_of_seeds_0_to_199_are_the_same(env):
    worst = {"points": 0.0, "polygons": 0.0, "shades": 0.0}
    for seed in range(200):
        for name, value in parity.track_difference(env, seed).items():
            worst[name] = max(worst[name], value)
    assert worst["points"] < 1e-9 and worst["polygons"] < 1e-9
    assert worst["shades"] < 0.5  # the reference truncates 104.55 to 104 only when it draws


@pytest.mark.parametrize("surface", ["road", "grass"])
@pytest.mark.parametrize(
    ("regime", "after_50", "after_100"), [("mild", 0.003, 0.034), ("violent", 0.064, 0.87)]
)
def test_the_car_moves_the_same(env, surface, regime, after_50, after_100):
    errors = [
        parity.dynamics_error(env, seed, getattr(parity, regime), surface) for seed in range(12)
    ]
    assert np.median([e[50] for e in errors]) <= after_50
    assert np.median([e[100] for e in errors]) <= after_100


@pytest.mark.parametrize("action", [(0.0, 0.5, 0.0), (0.1, 0.3, 0.0), (0.0, 0.7, 0.1)])
def test_tiles_are_visited_in_the_same_order_and_pay_the_same(env, action):
    for seed in (0, 1, 42):
        drive = parity.visit_order(env, seed, action, 100)
        assert not drive["order"], f"seed {seed}: another order"
        assert drive["timing"] == -1, f"seed {seed}: another tick from step {drive['timing']}"
        assert drive["reward"] < 1e-5
        assert abs(drive["ours"] - drive["theirs"]) < 0.5


def test_frames_of_the_same_state_look_the_same(env):
    regions = {region: [] for region in parity.PIXEL_REGIONS}
    for seed in (3, 4):
        errors, _ = parity.pixel_difference(env, seed, 25)
        for region, values in errors.items():
            regions[region].extend(values)
    means = {region: np.mean(values) for region, values in regions.items()}
    assert means["picture"] < 1.0  # the project's bound is 3
    assert means["edges"] < 6.0
    assert means["car"] < 5.0
    assert means["indicators"] < 0.5


def test_leaving_the_playfield_ends_with_minus_100_in_the_same_tick(env):
    ends = parity.leaving(env, 0)
    assert ends["theirs"][1:] == (-100.0, True)
    assert ends["ours"][1:] == ends["theirs"][1:]
    assert abs(ends["ours"][0] - ends["theirs"][0]) <= 1
