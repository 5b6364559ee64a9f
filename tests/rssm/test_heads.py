"""Heads and losses: squashing, bins, units, and the balance of the KL."""

import pytest
import torch

from rssm.imagination import imagine
from rssm.model.core import State
from rssm.model.heads import BINS, BOUND, HeadConfig, Heads, symexp, symlog, two_hot
from rssm.objective import LossConfig, kl_losses, weighted_sum
from tests.rssm.toys import DISCRETE, batch, model


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
    heads = Heads(4, 4, 32, 1, ("speed", "steer"), True, regression)
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
    predicted = heads.predict(features)
    assert predicted.keys() == targets.keys()
    for name, scale in (("reward", 2), ("speed", 20), ("steer", 0.1)):
        assert (predicted[name] - targets[name]).abs().mean() < 0.3 * scale
    for name in ("continue", "off"):
        assert ((predicted[name] > 0.5) == (targets[name] > 0.5)).float().mean() > 0.95


def test_an_untrained_head_predicts_the_mean():
    heads = Heads(4, 4, 8, 1, ("speed",), False, "symlog")
    heads.set_statistics({"reward": (1.0, 2.0), "speed": (60.0, 20.0)})
    predicted = heads.predict(torch.randn(3, 4))
    torch.testing.assert_close(predicted["speed"], torch.full((3,), 60.0))
    torch.testing.assert_close(predicted["continue"], torch.full((3,), 0.5))
    assert "off" not in predicted


def test_a_constant_target_is_no_division_by_zero():
    heads = Heads(4, 4, 8, 1, (), False, "symlog")
    heads.set_statistics({"reward": (5.0, 0.0)})
    losses = heads.losses(
        torch.randn(3, 4), {"reward": torch.full((3,), 5.0), "continue": torch.ones(3)}
    )
    assert torch.isfinite(losses["reward"]).all()


def test_each_half_of_the_balanced_kl_trains_its_own_side():
    latent = model(DISCRETE).core.latent
    posterior = torch.randn(4, 12, requires_grad=True)
    prior = torch.randn(4, 12, requires_grad=True)
    dynamics, representation, kl = kl_losses(latent.kl, posterior, prior, 0.0)
    torch.testing.assert_close(dynamics, representation)
    torch.testing.assert_close(dynamics, kl)
    slopes = torch.autograd.grad(
        dynamics.sum(), (posterior, prior), allow_unused=True, retain_graph=True
    )
    assert slopes[0] is None and slopes[1].abs().sum() > 0
    slopes = torch.autograd.grad(representation.sum(), (posterior, prior), allow_unused=True)
    assert slopes[0].abs().sum() > 0 and slopes[1] is None


def test_below_the_free_nats_there_is_nothing_to_gain():
    latent = model().core.latent
    posterior = torch.randn(4, 8, requires_grad=True)
    prior = (posterior + 0.01).detach()
    _, representation, kl = kl_losses(latent.kl, posterior, prior, 1.0)
    assert (kl < 1).all() and (representation == 1).all()
    assert torch.autograd.grad(representation.sum(), posterior)[0].abs().sum() == 0


def test_weights_and_annealing():
    parts = {"image": torch.tensor([2.0, 4.0]), "reward": torch.tensor([1.0])}
    total = weighted_sum(parts, {"image": 0.5, "reward": 0.0})
    assert total == 1.5
    config = LossConfig(kl_anneal=4, telemetry=0.25)
    assert [config.kl_scale(u) for u in (0, 1, 3, 9)] == [0.25, 0.5, 1.0, 1.0]
    assert LossConfig().kl_scale(0) == 1
    assert config.of_head("speed") == 0.25 and config.of_head("reward") == 1


def test_the_loss_adds_up_and_reaches_every_weight():
    world, rows = model(), batch(length=4)
    noise = world.core.latent.noise((2, 4), torch.Generator().manual_seed(0))
    config = LossConfig(free_nats=0.0)
    losses = world.loss(rows, noise, config)
    parts = losses.parts
    expected = config.image * parts["image"] + parts["dynamics"] + 0.1 * parts["representation"]
    expected = expected + sum(parts[n] for n in ("reward", "continue", "speed", "steer", "off"))
    torch.testing.assert_close(losses.total.detach(), expected)
    losses.total.backward()
    for name, parameter in world.named_parameters():
        assert parameter.grad is not None and parameter.grad.abs().sum() > 0, name


def test_the_image_loss_is_the_error_of_decoded_frames():
    world, rows = model(), batch(rows=3, length=33)  # 99 frames: a last pass of another size
    features = torch.randn(3, 33, 20)
    frames = rows["observation"].flatten(0, 1)
    loss = world.image_losses(features.flatten(0, 1), frames)[0].mean()
    flat = world.decoder(features.flatten(0, 1))
    from rssm.model.decoder import from_patches

    decoded = from_patches(flat, 3) + 0.5
    expected = (decoded - frames.float() / 255).square().sum((1, 2, 3)).mean()
    torch.testing.assert_close(loss, expected, rtol=1e-4, atol=1e-2)


def test_turns_of_decoded_rows_add_up_to_all_of_them():
    world, rows = model(), batch(rows=3, length=7)
    noise = world.core.latent.noise((3, 7), torch.Generator().manual_seed(0))
    whole = world.loss(rows, noise, LossConfig()).parts["image"]
    some = LossConfig(image_every=3)
    turns = [world.loss(rows, noise, some, turn=turn).parts["image"] for turn in range(4)]
    torch.testing.assert_close(torch.stack(turns[:3]).mean(), whole)
    assert turns[3] == turns[0]


def test_overshooting_sees_no_frame_and_stays_within_the_episode():
    world, rows = model(), batch(length=9, first=[(0, 5)])
    noise = world.core.latent.noise((2, 9), torch.Generator().manual_seed(0))
    config = LossConfig(overshoot=2.0, overshoot_rows=4)
    for turn, (starts, covered) in {0: ([0, 4], range(1, 9)), 3: ([3], range(4, 8))}.items():
        rows["action"].requires_grad_()
        states = world.observe(
            rows["observation"], rows["action"].detach(), rows["is_first"], noise=noise
        ).state
        future, window, row = world.futures(states, rows, noise, 4, turn)
        assert [int(r) for w, r in zip(window, row, strict=True) if w == 1] == list(covered)
        # Row 5 begins an episode: the future that would pass it ends before.
        reached = [int(r) for w, r in zip(window, row, strict=True) if w == 0]
        assert reached == [r for r in covered if r < 5 and r > starts[0]]
        (slope,) = torch.autograd.grad(future[window == 1][0].sum(), rows["action"])
        assert (slope.abs().sum(2) > 0)[1].nonzero().flatten().tolist() == [starts[0] + 1]
        expected = imagine(
            world, State(*(part[1:, starts[0]] for part in states)),
            rows["action"][1:, starts[0] + 1 : starts[0] + 5],
            noise=noise[1:, starts[0] + 1 : starts[0] + 5],
        ).state.features[0]  # fmt: skip
        torch.testing.assert_close(future[window == 1][:4], expected)
        rows["action"] = rows["action"].detach()
    losses = world.loss(rows, noise, config)
    plain = world.loss(rows, noise, LossConfig())
    ahead = {n: v for n, v in losses.parts.items() if n.startswith("ahead_")}
    assert ahead.keys() == {f"ahead_{n}" for n in ("reward", "continue", "speed", "steer", "off",
                                                   "image")}  # fmt: skip
    extra = sum(v for n, v in ahead.items() if n != "ahead_image")
    extra = 2.0 * (extra + config.image * ahead["ahead_image"])
    torch.testing.assert_close(losses.total.detach(), plain.total.detach() + extra)


def test_overshooting_leaves_out_what_there_is_not():
    config = LossConfig(overshoot=1.0, overshoot_rows=25, image_every=6)
    world, rows = model(), batch(rows=1, length=6)
    noise = world.core.latent.noise((1, 6), torch.Generator().manual_seed(0))
    for turn in range(20):
        losses = world.loss(rows, noise, config, turn=turn)
        assert torch.isfinite(losses.total) and "ahead_image" in losses.parts
    rows["is_first"][:] = True
    losses = world.loss(rows, noise, config)
    assert torch.isfinite(losses.total) and "ahead_reward" not in losses.parts


def test_frames_come_back_from_their_patches():
    from rssm.model.decoder import from_patches, to_patches

    frames = torch.randint(0, 256, (2, 96, 96, 3), dtype=torch.uint8)
    patches = to_patches(frames)
    assert patches.shape == (2, 24, 24, 48)
    assert (patches[0, 5, 7] == frames[0, 20:24, 28:32].flatten()).all()
    assert (from_patches(patches, 3) == frames).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [({"telemetry": ("sped",)}, "'sped'"), ({"telemetry": ("speed", "speed")}, "twice")],
)
def test_unknown_heads_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        HeadConfig(**options)


def test_a_plain_decoder_refuses_motion():
    world = model()
    with pytest.raises(ValueError, match="no motion"):
        world.decode(world.core.initial(2), motion=torch.zeros(2, 1, 3))


def test_the_perceptual_loss_trains_the_decoder_and_not_the_encoder():
    world, rows = model(), batch(length=3)
    features, frames = torch.randn(6, 20), rows["observation"].flatten(0, 1)
    image, distance = world.image_losses(features, frames, perceptual=True)
    distance.sum().backward()
    assert all(p.grad is None for p in world.encoder.parameters())
    assert all(p.grad.abs().sum() > 0 for p in world.decoder.parameters())
    assert distance.shape == image.shape
    noise = world.core.latent.noise((2, 3), torch.Generator().manual_seed(0))
    parts = world.loss(rows, noise, LossConfig(perceptual=0.05)).parts
    assert parts["perceptual"] > 0
    assert "perceptual" not in world.loss(rows, noise, LossConfig()).parts


def test_single_heads_can_have_their_own_weight():
    config = LossConfig(heads={"progress_delta": 2.0})
    assert config.of_head("progress_delta") == 2 and config.of_head("speed") == 1
    with pytest.raises(ValueError, match="heads has 'sped'"):
        LossConfig(heads={"sped": 1.0})


def test_a_decoder_may_be_told_the_motion_and_telemetry_see_only_its_part():
    import dataclasses

    from rssm.config import MOTION
    from rssm.model.world_model import WorldModel
    from tests.rssm.toys import NETWORK

    torch.manual_seed(0)
    world = WorldModel(dataclasses.replace(NETWORK, decode_motion=True), MOTION, False)
    assert world.decoder.inputs.in_features == 16 + 4 + 3
    assert world.decode(world.core.initial(2)).shape == (2, 96, 96, 3)
    with pytest.raises(ValueError, match="needs the motion heads"):
        WorldModel(dataclasses.replace(NETWORK, decode_motion=True))
    divided = WorldModel(dataclasses.replace(NETWORK, motion_latent=1), ("speed",), False)
    with torch.no_grad():
        for parameter in divided.heads.parameters():
            parameter.add_(torch.randn_like(parameter))
    features = torch.randn(2, 20, requires_grad=True)
    speed = divided.heads.predict(features)["speed"].sum()
    (slope,) = torch.autograd.grad(speed, features)
    assert (slope[:, :17] != 0).any(0).all() and (slope[:, 17:] == 0).all()
