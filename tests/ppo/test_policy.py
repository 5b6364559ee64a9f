from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn import functional

from envs.racing.config import ObservationSpec
from ppo.algorithm import value_error
from ppo.config import PolicyConfig
from ppo.policy import ActorCritic, pixel_shape, to_pixels
from tests.ppo.toys import NETWORK, SPEC


def policy(spec=SPEC, config=NETWORK, seed=0):
    torch.manual_seed(seed)
    return ActorCritic(spec, config)


def pixels(n=4, spec=SPEC, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (n, *pixel_shape(spec)), generator=generator, dtype=torch.uint8)


def parameters(module):
    return {name: p.detach().clone() for name, p in module.named_parameters()}


class TestPixels:
    def test_grey_frames_become_channels_oldest_first(self):
        spec = ObservationSpec(size=64, grey=True, frame_stack=4)
        observations = np.zeros((2, 4, 64, 64), np.uint8)
        observations[1, 3, 5, 7] = 9
        result = to_pixels(observations, spec)
        assert result.shape == (2, *pixel_shape(spec)) == (2, 64, 64, 4)
        assert result[1, 5, 7].tolist() == [0, 0, 0, 9]

    def test_one_colour_frame_is_taken_as_it_is(self):
        spec = ObservationSpec(size=64)
        observations = np.random.default_rng(0).integers(0, 256, (2, 64, 64, 3), np.uint8)
        assert pixel_shape(spec) == (64, 64, 3)
        assert (to_pixels(observations, spec).numpy() == observations).all()

    def test_stacked_colour_frames(self):
        spec = ObservationSpec(size=64, frame_stack=2)
        observations = np.zeros((2, 2, 64, 64, 3), np.uint8)
        observations[0, 1, 5, 7] = [1, 2, 3]
        result = to_pixels(observations, spec)
        assert result.shape == (2, *pixel_shape(spec)) == (2, 64, 64, 6)
        assert result[0, 5, 7].tolist() == [0, 0, 0, 1, 2, 3]


class TestActorCritic:
    def test_the_untrained_car_moves(self):
        spec = ObservationSpec(grey=True, frame_stack=4, action_repeat=4)
        driver = policy(spec, PolicyConfig(pedals="two"))
        frames = pixels(256, spec)
        with torch.inference_mode():
            mode = driver.decide(frames, torch.zeros(256, 3)).action
            noise = torch.randn(256, 3, generator=torch.Generator().manual_seed(1))
            sampled = driver.decide(frames, noise).action
        torch.testing.assert_close(
            mode, torch.tensor([0.0, 0.12, 0.02]).expand(256, 3), atol=0.02, rtol=0
        )
        steer, gas, brake = sampled.mean(0).tolist()
        assert abs(steer) < 0.1
        assert 0.1 < gas < 0.2
        assert brake < 0.05

    def test_pixels_are_scaled_to_one(self):
        driver, frames = policy(), pixels()
        x = frames.permute(0, 3, 1, 2) / 255
        for convolution in driver.encoder.convolutions:
            x = functional.relu(
                functional.conv2d(x, convolution.weight, convolution.bias, convolution.stride)
            )
        torch.testing.assert_close(driver.encoder(frames), x.flatten(1))

    def test_forward_agrees_with_the_decision(self):
        driver, frames, noise = policy(), pixels(), torch.randn(4, 3)
        decision = driver.decide(frames, noise)
        log_prob, _, value = driver(frames, decision.u, noise)
        assert torch.equal(log_prob, decision.log_prob)
        assert torch.equal(value, decision.value)
        assert torch.equal(value, driver.state_value(frames))

    def test_the_value_loss_leaves_the_policy_alone(self):
        driver, frames = policy(), pixels()
        before = parameters(driver)
        optimiser = torch.optim.Adam(driver.parameters(), 0.1)
        _, _, value = driver(frames, torch.zeros(4, 3), torch.zeros(4, 3))
        value_error(value, value.detach(), torch.full((4,), 3.0), None).sum().backward()
        optimiser.step()
        for name, parameter in driver.named_parameters():
            untouched = torch.equal(parameter, before[name])
            assert untouched == name.startswith(("policy.", "log_std")), name

    def test_the_policy_loss_leaves_the_value_alone(self):
        driver, frames = policy(), pixels()
        log_prob, entropy, _ = driver(frames, torch.ones(4, 3), torch.ones(4, 3))
        (log_prob + entropy).sum().backward()
        assert all(p.grad is None for p in driver.value.parameters())
        assert all(p.grad.abs().sum() > 0 for p in driver.policy.parameters())
        assert driver.log_std.grad.abs().min() > 0

    def test_log_std_stays_inside_its_limits(self):
        driver = policy(
            config=replace(NETWORK, log_std_min=-2.0, log_std_max=0.5, log_std_final=None)
        )
        with torch.no_grad():
            driver.log_std.copy_(torch.tensor([9.0, -9.0, 0.1]))
        decision = driver.decide(pixels(1), torch.ones(1, 3))
        at_mean = driver.decide(pixels(1), torch.zeros(1, 3))
        spread = (decision.u - at_mean.u)[0]
        torch.testing.assert_close(spread.log(), torch.tensor([0.5, -2.0, 0.1]))
        driver.project()
        torch.testing.assert_close(driver.log_std.data, torch.tensor([0.5, -2.0, 0.1]))
        # At a limit the gradient still flows, so that training can leave it.
        driver(pixels(1), torch.full((1, 3), 2.0), torch.zeros(1, 3))[0].sum().backward()
        assert driver.log_std.grad.abs().min() > 0

    def test_noise_fades_over_the_budget(self):
        config = replace(
            NETWORK, log_std_init=0.0, log_std_max=0.0, log_std_final=-2.0, log_std_fade=0.5
        )
        driver = policy(config=config)
        for elapsed, expected in [(0.0, 0.0), (0.25, -1.0), (0.5, -2.0), (1.0, -2.0)]:
            driver.limit_noise(elapsed)
            assert driver.log_std.tolist() == [expected] * 3
        with torch.no_grad():  # a policy that is surer than that is left alone
            driver.log_std.fill_(-3.0)
        driver.limit_noise(1.0)
        assert driver.log_std.tolist() == [-3.0] * 3

    def test_only_the_convolutions_run_in_bfloat16(self):
        driver, frames = policy(), pixels(64)
        exact = driver.decide(frames, torch.zeros(64, 3))
        with torch.autocast("cpu", torch.bfloat16):
            assert driver.encoder(frames).dtype == torch.bfloat16
            rounded = driver.decide(frames, torch.zeros(64, 3))
        assert rounded.log_prob.dtype == rounded.value.dtype == torch.float32
        torch.testing.assert_close(rounded.value, exact.value, atol=0.05, rtol=0.05)

    def test_one_pedal_is_gas_above_zero_and_brake_below(self):
        driver = policy(config=replace(NETWORK, pedals="one", initial_action=(0.1, 0.4, 0.05)))
        frames, zero = pixels(64), torch.zeros(64, 2)
        torch.testing.assert_close(
            driver.decide(frames, zero).action,
            torch.tensor([0.1, 0.35, 0.0]).expand(64, 3),
            atol=0.02, rtol=0,
        )  # fmt: skip
        noise = torch.randn(64, 2, generator=torch.Generator().manual_seed(0))
        decision = driver.decide(frames, 3 * noise)
        steer, gas, brake = decision.action.unbind(-1)
        assert decision.u.shape == (64, 2)
        assert ((gas == 0) != (brake == 0)).all() and (brake > 0).any() and (gas > 0).any()
        torch.testing.assert_close(gas - brake.sqrt(), decision.u[:, 1].tanh())
        torch.testing.assert_close(steer, decision.u[:, 0].tanh())
        assert list(driver.controls) == ["steer", "pedal"]

    def test_heads_share_a_layer_only_if_told_to(self):
        driver, frames = policy(config=replace(NETWORK, heads="shared")), pixels()
        _, _, value = driver(frames, torch.zeros(4, 3), torch.zeros(4, 3))
        value.sum().backward()
        reached = {name for name, p in driver.named_parameters() if p.grad is not None}
        assert {"trunk.0.weight", "value.0.weight"} <= reached
        assert len(driver.policy) == len(driver.value) == 1  # linear
        count = lambda config: sum(p.numel() for p in policy(config=config).parameters())  # noqa: E731
        assert count(NETWORK) > 1.3 * count(replace(NETWORK, heads="shared"))

    def test_a_clipped_policy_starts_from_the_same_action(self):
        driver, frames = policy(config=replace(NETWORK, squash="clip")), pixels(64)
        mode = driver.decide(frames, torch.zeros(64, 3)).action
        torch.testing.assert_close(
            mode, torch.tensor([0.0, 0.12, 0.02]).expand(64, 3), atol=0.02, rtol=0
        )
        far = driver.decide(frames, torch.full((64, 3), 1e3)).action
        assert far.tolist() == [[1.0, 1.0, 1.0]] * 64

    def test_convolutions_that_do_not_fit_are_refused(self):
        config = replace(NETWORK, kernels=(8, 40), strides=(8, 1))
        with pytest.raises(ValueError, match=r"kernel of 40 meets 8x8"):
            ActorCritic(SPEC, config)
