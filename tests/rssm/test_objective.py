"""The training objective: its parts, their weights, and the rows that each is taken on."""

from dataclasses import replace

import pytest
import torch

from rssm.model.core import State
from rssm.model.decoder import DecoderInput, from_patches
from rssm.objective import (
    LossConfig,
    image_losses,
    imagined_rows,
    kl_losses,
    observed_rows,
    weighted_sum,
    world_model_loss,
)
from tests.rssm.toys import DISCRETE, PLAIN_LOSS, batch, model


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
    settings = replace(PLAIN_LOSS, kl_anneal=4, telemetry=0.25)
    assert [settings.kl_scale(u) for u in (0, 1, 3, 9)] == [0.25, 0.5, 1.0, 1.0]
    assert PLAIN_LOSS.kl_scale(0) == 1
    assert settings.of_head("speed") == 0.25 and settings.of_head("reward") == 1


def test_the_loss_adds_up_and_reaches_every_weight():
    world, rows = model(), batch(length=4)
    noise = world.core.latent.noise((2, 4), torch.Generator().manual_seed(0))
    settings = replace(PLAIN_LOSS, free_nats=0.0)
    losses = world_model_loss(world, rows, noise, settings)
    parts = losses.parts
    expected = settings.image * parts["image"] + parts["dynamics"] + 0.1 * parts["representation"]
    expected = expected + sum(parts[n] for n in ("reward", "continue", "speed", "steer", "off"))
    torch.testing.assert_close(losses.total.detach(), expected)
    losses.total.backward()
    for name, parameter in world.named_parameters():
        assert parameter.grad is not None and parameter.grad.abs().sum() > 0, name


def test_the_image_loss_is_the_error_of_decoded_frames():
    world, rows = model(), batch(rows=3, length=33)  # 99 frames: a last pass of another size
    features = torch.randn(3, 33, 20)
    frames = rows.observation.flatten(0, 1)
    loss = image_losses(world, observed_rows(world, features, rows), rows)[0].mean()
    decoded = from_patches(world.decoder(DecoderInput(features.flatten(0, 1))), 3) + 0.5
    expected = (decoded - frames.float() / 255).square().sum((1, 2, 3)).mean()
    torch.testing.assert_close(loss, expected, rtol=1e-4, atol=1e-2)


def test_turns_of_decoded_rows_add_up_to_all_of_them():
    world, rows = model(), batch(rows=3, length=7)
    noise = world.core.latent.noise((3, 7), torch.Generator().manual_seed(0))
    whole = world_model_loss(world, rows, noise, PLAIN_LOSS).parts["image"]
    some = replace(PLAIN_LOSS, image_every=3)
    turns = [
        world_model_loss(world, rows, noise, some, pass_number=turn).parts["image"]
        for turn in range(4)
    ]
    torch.testing.assert_close(torch.stack(turns[:3]).mean(), whole)
    assert turns[3] == turns[0]


def test_overshooting_sees_no_frame_and_stays_within_the_episode():
    world, rows = model(), batch(length=9, first=[(0, 5)])
    noise = world.core.latent.noise((2, 9), torch.Generator().manual_seed(0))
    settings = replace(PLAIN_LOSS, overshoot=2.0, overshoot_rows=4)
    for turn, (starts, covered) in {0: ([0, 4], range(1, 9)), 3: ([3], range(4, 8))}.items():
        rows.action.requires_grad_()
        states = world.observe(
            rows.observation, rows.action.detach(), rows.is_first, noise=noise
        ).state
        future = imagined_rows(world, states, rows, noise, 4, turn)
        features, window, row = future.features, future.window, future.row
        assert [int(r) for w, r in zip(window, row, strict=True) if w == 1] == list(covered)
        # Row 5 begins an episode: the future that would pass it ends before.
        reached = [int(r) for w, r in zip(window, row, strict=True) if w == 0]
        assert reached == [r for r in covered if r < 5 and r > starts[0]]
        (slope,) = torch.autograd.grad(features[window == 1][0].sum(), rows.action)
        assert (slope.abs().sum(2) > 0)[1].nonzero().flatten().tolist() == [starts[0] + 1]
        expected = world.imagine(
            State(*(part[1:, starts[0]] for part in states)),
            rows.action[1:, starts[0] + 1 : starts[0] + 5],
            noise=noise[1:, starts[0] + 1 : starts[0] + 5],
        ).state.features[0]  # fmt: skip
        torch.testing.assert_close(features[window == 1][:4], expected)
        rows = rows._replace(action=rows.action.detach())
    losses = world_model_loss(world, rows, noise, settings)
    plain = world_model_loss(world, rows, noise, PLAIN_LOSS)
    ahead = {n: v for n, v in losses.parts.items() if n.startswith("ahead_")}
    assert ahead.keys() == {f"ahead_{n}" for n in ("reward", "continue", "speed", "steer", "off",
                                                   "image")}  # fmt: skip
    extra = sum(v for n, v in ahead.items() if n != "ahead_image")
    extra = 2.0 * (extra + settings.image * ahead["ahead_image"])
    torch.testing.assert_close(losses.total.detach(), plain.total.detach() + extra)


def test_overshooting_leaves_out_what_there_is_not():
    settings = replace(PLAIN_LOSS, overshoot=1.0, overshoot_rows=25, image_every=6)
    world, rows = model(), batch(rows=1, length=6)
    noise = world.core.latent.noise((1, 6), torch.Generator().manual_seed(0))
    for turn in range(20):
        losses = world_model_loss(world, rows, noise, settings, pass_number=turn)
        assert torch.isfinite(losses.total) and "ahead_image" in losses.parts
    rows.is_first[:] = True
    losses = world_model_loss(world, rows, noise, settings)
    assert torch.isfinite(losses.total) and "ahead_reward" not in losses.parts


def test_the_perceptual_loss_trains_the_decoder_and_not_the_encoder():
    world, rows = model(), batch(length=3)
    decoded = observed_rows(world, torch.randn(2, 3, 20), rows)
    image, distance = image_losses(world, decoded, rows, perceptual=True)
    distance.sum().backward()
    assert all(p.grad is None for p in world.encoder.parameters())
    assert all(p.grad.abs().sum() > 0 for p in world.decoder.parameters())
    assert distance.shape == image.shape
    noise = world.core.latent.noise((2, 3), torch.Generator().manual_seed(0))
    parts = world_model_loss(world, rows, noise, replace(PLAIN_LOSS, perceptual=0.05)).parts
    assert parts["perceptual"] > 0
    assert "perceptual" not in world_model_loss(world, rows, noise, PLAIN_LOSS).parts


def test_single_heads_can_have_their_own_weight():
    settings = replace(PLAIN_LOSS, heads={"progress_delta": 2.0})
    assert settings.of_head("progress_delta") == 2 and settings.of_head("speed") == 1
    with pytest.raises(ValueError, match="heads has 'sped'"):
        LossConfig(heads={"sped": 1.0})
