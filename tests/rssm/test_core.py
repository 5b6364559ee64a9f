"""The core: what follows from what, resets, and distributions against torch's own."""

import dataclasses

import pytest
import torch
from torch import distributions

from rssm.data import Batch
from rssm.model.core import Core, State
from tests.rssm.toys import DISCRETE, NETWORK, batch, model

NETWORKS = pytest.mark.parametrize("network", [NETWORK, DISCRETE], ids=["gaussian", "discrete"])


def followed(world, rows, **changes):
    """States along the rows with fixed noise."""
    rows = rows._replace(**changes)
    shape = tuple(rows.is_first.shape)
    noise = world.core.latent.noise(shape, torch.Generator().manual_seed(7))
    return world.observe(rows.observation, rows.action, rows.is_first, noise=noise)


@NETWORKS
def test_a_state_depends_on_its_own_and_earlier_actions_only(network):
    world, rows = model(network), batch(length=5)
    rows.action.requires_grad_()
    observed = followed(world, rows)
    for t in range(5):
        (slope,) = torch.autograd.grad(
            observed.state.deter[:, t].sum(), rows.action, retain_graph=True
        )
        reached = slope.abs().sum((0, 2)) > 0
        assert reached.tolist() == [k <= t for k in range(5)]


@NETWORKS
def test_the_prior_has_not_seen_the_frame_that_the_posterior_has(network):
    world, rows = model(network), batch(length=4)
    changed = rows.observation.clone()
    changed[:, 2] = 255 - changed[:, 2]
    one, other = followed(world, rows), followed(world, rows, observation=changed)
    same = [(a == b).flatten(2).all(2).all(0) for a, b in (
        (one.state.deter, other.state.deter), (one.prior, other.prior),
        (one.posterior, other.posterior))]  # fmt: skip
    assert same[0].tolist() == [True, True, True, False]
    assert same[1].tolist() == [True, True, True, False]
    assert same[2].tolist() == [True, True, False, False]


@NETWORKS
def test_nothing_passes_the_first_row_of_an_episode(network):
    """Neither state nor the action of that row, which led to nothing (pytorch/rl#4128)."""
    world, rows = model(network), batch(length=5, first=[(0, 3)])
    rows.action.requires_grad_()
    observed = followed(world, rows)
    late = observed.state.features[:, 3:].sum() + observed.prior[:, 3:].sum()
    (slope,) = torch.autograd.grad(late, rows.action)
    reached = slope.abs().sum(2) > 0
    assert reached[0].tolist() == [False, False, False, False, True]
    assert reached[1].tolist() == [True] * 5
    late = Batch(rows.action[:, 3:], rows.is_first[:, 3:], {}, rows.observation[:, 3:])
    alone = followed(world, late)
    torch.testing.assert_close(observed.state.deter[0, 3], alone.state.deter[0, 0])


@NETWORKS
def test_early_frames_reach_late_states(network):
    """A rollout that does not carry its state would pass most other tests (pytorch/rl#3236)."""
    world, rows = model(network), batch(length=6)
    changed = rows.observation.clone()
    changed[:, 0] = 255 - changed[:, 0]
    one, other = followed(world, rows), followed(world, rows, observation=changed)
    assert (one.state.deter[:, -1] != other.state.deter[:, -1]).any()


@NETWORKS
def test_following_in_two_parts_is_following_at_once(network):
    world, rows = model(network), batch(length=6, first=[(1, 4)])
    noise = world.core.latent.noise((2, 6), torch.Generator().manual_seed(7))
    whole = followed(world, rows)
    state, parts = None, []
    for part in (slice(0, 2), slice(2, 6)):
        seen = world.observe(
            rows.observation[:, part], rows.action[:, part], rows.is_first[:, part],
            state=state, noise=noise[:, part],
        )  # fmt: skip
        state = State(seen.state.deter[:, -1], seen.state.stoch[:, -1])
        parts.append(seen.state.deter)
    torch.testing.assert_close(torch.cat(parts, 1), whole.state.deter)


def test_an_encoder_that_sees_change_knows_where_there_is_none():
    world = model(dataclasses.replace(NETWORK, see_change=True))
    rows = batch(length=5, first=[(1, 2)])
    frames, is_first = rows.observation, rows.is_first
    embedded = world.encode(frames, is_first)
    torch.testing.assert_close(embedded[:, 0], world.encode(frames[:, :1])[:, 0])
    torch.testing.assert_close(embedded[1, 2], world.encode(frames[1:, 2:3])[0, 0])
    assert (embedded[0, 2] != world.encode(frames[:1, 2:3])[0, 0]).any()
    rest = world.encode(frames[:, 3:], is_first[:, 3:], before=frames[:, 2])
    torch.testing.assert_close(rest, embedded[:, 3:])
    other = frames.clone()
    other[0, 1] = 255 - other[0, 1]
    changed = world.encode(other, is_first) != embedded
    assert changed.any(-1).nonzero().tolist() == [[0, 1], [0, 2]]


@NETWORKS
def test_imagination_continues_exactly_where_observation_stops(network):
    """The first imagined step is the next observed one: same action, same deterministic state."""
    world, rows = model(network), batch(length=6)
    observed = followed(world, rows)
    state = State(observed.state.deter[:, 2], observed.state.stoch[:, 2])
    future = world.imagine(state, rows.action[:, 3:], sample=False)
    torch.testing.assert_close(future.state.deter[:, 0], observed.state.deter[:, 3])
    torch.testing.assert_close(
        world.core.prior(future.state.deter[:, 0]), observed.prior[:, 3], rtol=1e-4, atol=1e-5
    )
    assert future.state.deter.shape == (2, 3, 16)
    assert (future.actions == rows.action[:, 3:]).all()


@NETWORKS
def test_imagination_feeds_its_latents_back(network):
    """Open loop is not a row of one-step predictions (sheeprl#272)."""
    world, rows = model(network), batch()
    state = followed(world, rows).state
    state = State(state.deter[:, 0].requires_grad_(), state.stoch[:, 0].detach().requires_grad_())
    future = world.imagine(state, rows.action[:, 1:], sample=False)
    last = future.telemetry["speed"][:, -1].sum()
    slopes = torch.autograd.grad(last, state, allow_unused=True)
    assert all(slope is not None and slope.abs().sum() > 0 for slope in slopes)


class Counting:
    """A policy with a memory: the action is the state and the number of its own decisions."""

    def initial(self, n):
        return torch.zeros(n)

    def act(self, carry, observation, is_first, deterministic):
        self.calls = [*getattr(self, "calls", []), (observation, is_first, deterministic)]
        carry = torch.where(is_first, torch.zeros_like(carry), carry) + 1
        return torch.cat((observation.deter[:, :2], carry[:, None]), -1), carry


@NETWORKS
def test_a_policy_acts_on_the_state_before_the_step_and_keeps_its_carry(network):
    world, rows = model(network), batch()
    state = followed(world, rows).state
    state = State(state.deter[:, 2], state.stoch[:, 2])
    policy = Counting()
    future = world.imagine(state, policy, 4, sample=False, deterministic=True)
    assert policy.calls[0][0] is state is future.start
    torch.testing.assert_close(future.actions[:, 0, :2], state.deter[:, :2])
    for t in range(1, 4):
        torch.testing.assert_close(future.actions[:, t, :2], future.state.deter[:, t - 1, :2])
    assert future.actions[0, :, 2].tolist() == [1, 2, 3, 4] and future.carry.tolist() == [4, 4]
    assert [bool(first.all()) for _, first, _ in policy.calls] == [True, False, False, False]
    assert all(deterministic for _, _, deterministic in policy.calls)
    last = State(*(part[:, -1] for part in future.state))
    on = world.imagine(last, policy, 2, sample=False, carry=future.carry)
    assert on.actions[0, :, 2].tolist() == [5, 6]
    whole = world.imagine(state, policy, 6, sample=False)
    torch.testing.assert_close(whole.state.deter[:, 4:], on.state.deter)


def test_a_policy_learns_through_the_imagined_future():
    world, rows = model(), batch()
    state = followed(world, rows).state
    state = State(state.deter[:, 2].detach(), state.stoch[:, 2].detach())
    weight = torch.zeros(16, 3, requires_grad=True)

    class Linear(Counting):
        def act(self, carry, observation, is_first, deterministic):
            return observation.deter @ weight, carry

    future = world.imagine(state, Linear(), 3)
    (slope,) = torch.autograd.grad(future.reward[:, -1].sum(), weight)
    assert slope.abs().sum() > 0


def test_a_future_has_its_start_and_pixels_only_when_asked():
    world, rows = model(), batch()
    state = followed(world, rows).state
    state = State(state.deter[:, 2], state.stoch[:, 2])
    future = world.imagine(state, rows.action[:, 3:], sample=False)
    assert future.frames is None and future.carry is None
    assert (future.states.deter[:, 0] == state.deter).all()
    assert (future.states.stoch[:, 1:] == future.state.stoch).all()
    assert future.reward.shape == future.continue_prob.shape == (2, 3)
    assert ((future.continue_prob > 0) & (future.continue_prob < 1)).all()
    assert future.telemetry.keys() == {"speed", "steer"} and future.off_prob.shape == (2, 3)
    shown = world.imagine(state, rows.action[:, 3:], sample=False, pixels=True)
    assert (shown.frames == world.decode(shown.state)).all()
    assert shown.frames.shape == (2, 3, 96, 96, 3)


@pytest.mark.parametrize("horizon", [0, 6])
def test_a_horizon_beyond_the_actions_is_refused(horizon):
    world, rows = model(), batch()
    state = world.core.initial(2)
    with pytest.raises(ValueError, match="horizon is 1 to 5"):
        world.imagine(state, rows.action[:, 1:], horizon)
    with pytest.raises(ValueError, match="needs a horizon"):
        world.imagine(state, Counting())


def test_the_gaussian_is_torchs():
    latent = model().core.latent
    generator = torch.Generator().manual_seed(1)
    p, q = torch.randn(2, 5, 2 * NETWORK.stoch, generator=generator).unbind(0)
    mine = [distributions.Normal(*latent.gaussian(x)) for x in (p, q)]
    torch.testing.assert_close(
        latent.kl(p, q), distributions.kl_divergence(*mine).sum(-1), rtol=1e-4, atol=1e-5
    )
    noise = latent.noise((200_000,), generator)
    sample = latent.sample(p[:1], noise)
    mean, std = latent.gaussian(p[0])
    torch.testing.assert_close(sample.mean(0), mean, atol=0.02, rtol=0)
    torch.testing.assert_close(sample.std(0), std, atol=0.02, rtol=0)
    assert (latent.mode(p) == latent.gaussian(p)[0]).all()


def test_the_discrete_state_is_torchs():
    latent = model(DISCRETE).core.latent
    generator = torch.Generator().manual_seed(1)
    p, q = 2 * torch.randn(2, 5, 12, generator=generator)
    mine = [distributions.Categorical(logits=latent.log_probs(x)) for x in (p, q)]
    torch.testing.assert_close(
        latent.kl(p, q), distributions.kl_divergence(*mine).sum(-1), rtol=1e-4, atol=1e-5
    )
    sample = latent.sample(p[:1], latent.noise((200_000,), generator)).unflatten(-1, (4, 3))
    torch.testing.assert_close(sample.sum(-1), torch.ones(200_000, 4))
    torch.testing.assert_close(sample.mean(0), mine[0].probs[0], atol=0.01, rtol=0)
    assert mine[0].probs.min() > DISCRETE.unimix / 3 * 0.99
    assert (latent.mode(p).unflatten(-1, (4, 3)).argmax(-1) == mine[0].probs.argmax(-1)).all()


def test_a_discrete_sample_passes_its_gradient_straight_through():
    latent = model(DISCRETE).core.latent
    statistics = torch.randn(3, 12, requires_grad=True)
    weights = torch.randn(12)
    noise = latent.noise((3,), torch.Generator().manual_seed(0))
    (straight,) = torch.autograd.grad(
        (latent.sample(statistics, noise) * weights).sum(), statistics
    )
    probs = latent.log_probs(statistics).exp().flatten(-2)
    (expected,) = torch.autograd.grad((probs * weights).sum(), statistics)
    torch.testing.assert_close(straight, expected)


def test_the_gaussian_begins_as_wide_as_configured():

    network = dataclasses.replace(NETWORK, hidden=256, first_std=0.3)
    torch.manual_seed(0)
    core = Core(network, 8, 3)
    posterior = core.posterior(torch.randn(500, 16), torch.randn(500, 8))
    for statistics in (posterior, core.prior(torch.randn(500, 16))):
        std = core.latent.gaussian(statistics)[1]
        assert abs(float(std.detach().median()) - 0.3) < 0.05
    with pytest.raises(ValueError, match="first_std"):
        dataclasses.replace(NETWORK, first_std=NETWORK.min_std)
