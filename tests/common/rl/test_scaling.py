"""Running moments and the scaling of rewards."""

import numpy as np
import pytest
import torch

from common.rl.scaling import ReturnScaler, RunningMoments

LOW = torch.tensor([-1.0, 0.0, 0.0])
HIGH = torch.tensor([1.0, 1.0, 1.0])


class TestRunningMoments:
    def test_merging_batches_equals_all_at_once(self):
        data = np.random.default_rng(0).normal(1e4, 0.5, 1000)
        moments = RunningMoments()
        for part in np.split(data, [0, 1, 10, 500]):
            moments.update(torch.from_numpy(part))
        assert moments.mean == pytest.approx(data.mean(), rel=1e-12)
        assert moments.std == pytest.approx(data.std(), rel=1e-9)

    def test_no_scaling_before_there_is_a_spread(self):
        moments = RunningMoments()
        assert moments.std == 1.0
        moments.update(torch.tensor([5.0]))
        assert moments.std == 1.0

    def test_state_round_trip(self):
        moments, copy = RunningMoments(), RunningMoments()
        moments.update(torch.arange(5.0))
        copy.load_state_dict(moments.state_dict())
        assert copy == moments


class TestReturnScaler:
    def test_against_direct_computation(self):
        rng = np.random.default_rng(3)
        reward = rng.normal(2, 3, (40, 3)).astype(np.float32)
        done = rng.random((40, 3)) < 0.2
        active = rng.random((40, 3)) < 0.8
        returns = []
        for n in range(3):
            running = 0.0
            for t in range(40):
                if not active[t, n]:
                    running = 0.0
                    continue
                running = 0.9 * running + float(reward[t, n])
                returns.append(running)
                if done[t, n]:
                    running = 0.0
        scaler = ReturnScaler(3, 0.9)
        for part in (slice(0, 25), slice(25, 40)):  # streams go on from one rollout to the next
            scaler.update(*(torch.from_numpy(x[part]) for x in (reward, done, active)))
        assert scaler.scale == pytest.approx(1 / np.std(returns), rel=1e-6)

    def test_processes_share_one_scale(self):
        reward = torch.randn(8, 2, generator=torch.Generator().manual_seed(0))
        other = RunningMoments()
        other.update(torch.tensor([100.0, -100.0]))
        none, all_ = torch.zeros(8, 2, dtype=torch.bool), torch.ones(8, 2, dtype=torch.bool)
        scaler = ReturnScaler(2, 0.9, gather=lambda moments: [moments, other])
        scaler.update(reward, none, all_)
        assert scaler.moments.count == 18
        assert scaler.moments.std > 30
