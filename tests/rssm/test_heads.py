"""Heads: squashing, bins and units."""

from dataclasses import replace

import pytest
import torch

from rssm.config import MOTION, HeadConfig
from rssm.model.heads import BINS, BOUND, Heads, symexp, symlog, two_hot
from rssm.world_model import WorldModel
from tests.rssm.toys import NETWORK, config


def test_symlog_is_undone_by_symexp():
    x = torch.tensor([-1000.0, -1, -1e-3, 0, 1e-3, 1, 1000])
    torch.testing.assert_close(symexp(symlog(x)), x, rtol=1e-5, atol=1e-7)
    assert (symlog(x) == -symlog(-x)).all()


def test_two_hot_weights_average_to_the_value():
    bins = torch.linspace(-BOUND, BOUND, BINS)
    x = torch.tensor([-9.0, -BOUND, -1.234, 0.0, 0.04, 3.99, BOUND, 9])
    weights = two_hot(x, bins)
    torch.testing.assert_close(weights.sum(-1), torch.ones(8))
    assert ((weights > 0).sum(-1) <= 2).all()
    torch.testing.assert_close((weights * bins).sum(-1), x.clamp(-BOUND, BOUND))


@pytest.mark.parametrize("regression", ["symlog", "twohot"])
def test_heads_learn_their_targets_in_the_units_of_the_data(regression):
    torch.manual_seed(0)
    heads = Heads(
        4, 4, 32, 1, HeadConfig(("speed", "steer"), off_track=True, regression=regression)
    )
    heads.set_statistics({"reward": (1.0, 2.0), "speed": (60.0, 20.0), "steer": (0.0, 0.1)})
    features = torch.randn(512, 4)
    targets = {
        "reward": 1 + 2 * features[:, 0],
        "speed": 60 + 20 * features[:, 1],
        "steer": 0.1 * features[:, 2],
        "continue": (features[:, 3] > 0).float(),
        "off": (features[:, 0] > 0).float(),
    }
    optimiser = torch.optim.Adam(heads.parameters(), 1e-2)
    for _ in range(400):
        loss = sum(part.mean() for part in heads.losses(features, targets).values())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    predicted = heads.predict(features).by_head()
    assert predicted.keys() == targets.keys()
    for name, scale in (("reward", 2), ("speed", 20), ("steer", 0.1)):
        assert (predicted[name] - targets[name]).abs().mean() < 0.3 * scale
    for name in ("continue", "off"):
        assert ((predicted[name] > 0.5) == (targets[name] > 0.5)).float().mean() > 0.95


def test_an_untrained_head_predicts_the_mean():
    heads = Heads(4, 4, 8, 1, HeadConfig(("speed",), off_track=False))
    heads.set_statistics({"reward": (1.0, 2.0), "speed": (60.0, 20.0)})
    predicted = heads.predict(torch.randn(3, 4)).by_head()
    torch.testing.assert_close(predicted["speed"], torch.full((3,), 60.0))
    torch.testing.assert_close(predicted["continue"], torch.full((3,), 0.5))
    assert "off" not in predicted


def test_a_constant_target_is_no_division_by_zero():
    heads = Heads(4, 4, 8, 1, HeadConfig((), off_track=False))
    heads.set_statistics({"reward": (5.0, 0.0)})
    losses = heads.losses(
        torch.randn(3, 4), {"reward": torch.full((3,), 5.0), "continue": torch.ones(3)}
    )
    assert torch.isfinite(losses["reward"]).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [({"telemetry": ("sped",)}, "'sped'"), ({"telemetry": ("speed", "speed")}, "twice")],
)
def test_unknown_heads_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        HeadConfig(**options)


def test_telemetry_heads_see_only_the_part_for_motion():
    divided = WorldModel(config(replace(NETWORK, motion_latent=1), ("speed",), False))
    with torch.no_grad():
        for parameter in divided.heads.parameters():
            parameter.add_(torch.randn_like(parameter))
    features = torch.randn(2, 20, requires_grad=True)
    speed = divided.heads.predict(features).telemetry["speed"].sum()
    (slope,) = torch.autograd.grad(speed, features)
    assert (slope[:, :17] != 0).any(0).all() and (slope[:, 17:] == 0).all()


def test_motion_comes_in_the_units_of_the_data_and_back():
    heads = Heads(4, 4, 8, 1, HeadConfig(MOTION, off_track=False))
    heads.set_statistics(
        {"reward": (0.0, 1.0)} | dict(zip(MOTION, [(0, 2), (3, 1), (0, 0.1)], strict=True))
    )
    motion = torch.tensor([[1.0, 4.0, -0.2]])
    torch.testing.assert_close(
        symexp(heads.squash_motion(motion)), torch.tensor([[0.5, 1.0, -2.0]])
    )
    torch.testing.assert_close(heads.motion(torch.zeros(1, 4)), torch.tensor([[0.0, 3.0, 0.0]]))
