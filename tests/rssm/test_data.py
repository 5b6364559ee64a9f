"""Batches: the rows that the sampler names, the targets that the heads need, nothing filled in."""

import numpy as np
import pytest
import torch

from common.errors import UserError
from rssm.config import HeadConfig
from rssm.data import DataConfig, MicroBatches, Reader, choose_heads
from tests.rssm.toys import counting_data, opened


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("data")
    counting_data(root)
    return root


def micro_batches(root, **options):
    sizes = {"length": 10, "batch": 8} | options
    ranks = {name: sizes.pop(name) for name in ("rank", "world") if name in sizes}
    config = DataConfig(root=str(root), dataset="D", **sizes)
    return MicroBatches(Reader(opened(root), ("speed", "steer"), True), config, 3, 5, **ranks)


def test_a_batch_holds_what_its_frames_show(root):
    """From collection to batch: every target belongs to the frame in its own row."""
    made = micro_batches(root)
    assert len(made) == 5
    for number in range(5):
        rows = made[number]
        assert rows.observation.shape == (8, 10, 96, 96, 3)
        assert rows.observation.dtype == torch.uint8
        place = (rows.observation[..., 0, 0] > 100).float().mean(-1)
        inside = ~rows.is_first
        assert (place - rows.targets["speed"]).abs().max() < 0.011
        assert ((place - rows.targets["reward"]).abs()[inside] < 0.011).all()
        assert (rows.targets["steer"] == rows.action[..., 0]).all()
        moved = (rows.targets["speed"][:, :-1] + rows.action[:, 1:, 0]).clamp(0, 1)
        assert ((moved - rows.targets["speed"][:, 1:]).abs()[inside[:, 1:]] < 1e-6).all()
        assert (rows.targets["off"] == (rows.targets["speed"] > 0.5).float()).all()
        assert (rows.targets["continue"] == 1).all()


def test_the_frame_before_a_window_comes_with_it(root):
    data = opened(root)
    starts = np.array([0, 1, int(data.episodes["start"][1]), int(data.episodes["start"][1]) + 5])
    rows = Reader(data, ("speed", "steer"), True).batch(starts, 3)
    every = data.windows([0], data.rows, ["observation"])["observation"][0]
    expected = [0, 0, starts[2], starts[3] - 1]  # an episode's first frame has none before it
    assert (rows.before.numpy() == every[expected]).all()


def test_batches_are_a_function_of_seed_and_number(root):
    one, other = micro_batches(root), micro_batches(root)
    for number in (4, 0, 2):
        repeated = other[number].tensors()
        for name, value in one[number].tensors().items():
            assert (value == repeated[name]).all()


def test_micro_batches_and_ranks_divide_the_same_batch(root):
    whole = micro_batches(root)[2].observation
    micro = micro_batches(root, micro_batch=2)
    assert len(micro) == 20
    parts = torch.cat([micro[8 + part].observation for part in range(4)])
    assert (parts == whole).all()
    ranks = [micro_batches(root, micro_batch=4, rank=rank, world=2) for rank in range(2)]
    parts = [ranks[rank][4 + part].observation for part in range(2) for rank in range(2)]
    assert (torch.cat(parts) == whole).all()
    with pytest.raises(UserError, match="4 windows cannot be split over 3"):
        micro_batches(root, micro_batch=4, rank=0, world=3)


def test_stratification_needs_corner_angles(root):
    with pytest.raises(UserError, match="no corner_angle"):
        micro_batches(root, strata=(0.2,))


def test_heads_follow_the_data(root):
    data = opened(root)
    chosen = choose_heads(HeadConfig(), data)
    assert chosen == HeadConfig(("speed", "steer"), off_track=True)
    none = HeadConfig(telemetry=(), off_track=False)
    assert choose_heads(none, data) == none
    with pytest.raises(UserError, match="without yaw_rate, so no head can learn it"):
        Reader(data, ("speed", "yaw_rate"), off=True)


def test_statistics_leave_out_rows_that_nothing_led_to(root):
    data = opened(root)
    found = Reader(data, ("speed",), False).statistics()
    rows = ~data.column("is_first")
    assert rows.sum() == 12 * 39
    assert found["reward"] == pytest.approx(
        (data.column("reward")[rows].mean(), data.column("reward")[rows].std()), rel=1e-5
    )
    assert found["speed"][0] == pytest.approx(np.mean(data.column("telemetry/speed")[rows]))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch": 8, "micro_batch": 3}, "divides the batch of 8, unlike 3"),
        ({"length": 1}, "length is 2 to 4096"),
        ({"strata": (0.4, 0.2)}, "strata grow"),
        ({"strata": (-1.0, 0.2)}, "strata"),
        ({"on_damage": "ignore"}, "refuse, skip"),
    ],
)
def test_values_out_of_range_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        DataConfig(**options)


def test_motion_is_read_from_the_pose(tmp_path):
    """In the car's own axes, and nothing across an episode's start."""
    from rssm.motion import compose, motion_between

    heading = np.array([0.0, 0.0, np.pi / 2, np.pi / 2])
    x, y = np.array([0.0, 0.0, 0.0, -3.0]), np.array([0.0, 2.0, 2.0, 2.0])
    moved = motion_between(x, y, heading, np.arange(3), np.arange(1, 4))
    np.testing.assert_allclose(moved.forward, [2, 0, 3], atol=1e-12)
    np.testing.assert_allclose(moved.lateral, [0, 0, 0], atol=1e-12)
    np.testing.assert_allclose(moved.yaw, [0, np.pi / 2, 0], atol=1e-12)
    whole = compose(moved)
    ends = motion_between(x, y, heading, np.zeros(3, int), np.arange(1, 4))
    for one, other in zip(whole, ends, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-12)
