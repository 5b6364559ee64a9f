"""From pixels to a squashed Gaussian over the car's controls and a value."""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from common.rl.controls import CONTROLS, press
from common.rl.distributions import ClippedGaussian, SquashedGaussian
from common.rl.policy import ObservationSpec
from common.torch.layers import orthogonal
from ppo.config import PolicyConfig

_ACTIVATIONS = {"relu": nn.ReLU, "elu": nn.ELU, "silu": nn.SiLU, "tanh": nn.Tanh}


def pixel_shape(spec: ObservationSpec) -> tuple[int, int, int]:
    """(height, width, channels) of the network's input; channels are frames x colours."""
    return spec.size, spec.size, spec.frame_stack * (1 if spec.grey else 3)


def to_pixels(observations: np.ndarray | Tensor, spec: ObservationSpec) -> Tensor:
    """A batch of uint8 observations (n, *spec.shape) as (n, height, width, channels).

    Convolutions are fastest with channels last. The result is a view wherever possible.
    """
    x = torch.as_tensor(observations)
    if spec.grey:
        return x.permute(0, 2, 3, 1)
    if spec.frame_stack == 1:
        return x
    return x.permute(0, 2, 3, 1, 4).flatten(3)


class Decision(NamedTuple):
    """The policy's output for a batch: u (controls before squashing), action (steer, gas, brake),
    log density of the controls, and value."""

    u: Tensor
    action: Tensor
    log_prob: Tensor
    value: Tensor


class ActorCritic(nn.Module):
    """A shared convolutional encoder, then MLPs for policy and value (`config.heads`).

    Pixels are uint8 (n, height, width, channels). `controls` has the names of the policy's outputs,
    in order, with their bounds. The convolutions may run under autocast. Everything after them is
    float32, because bfloat16 is too coarse for a probability ratio.
    """

    def __init__(self, spec: ObservationSpec, config: PolicyConfig) -> None:
        super().__init__()
        self.config = config
        self.controls = CONTROLS[config.pedals]
        low, high = torch.tensor(list(self.controls.values())).unbind(-1)
        self.limits = (config.log_std_min, config.log_std_max)
        self.encoder = PolicyEncoder(pixel_shape(spec), config)
        activation = _ACTIVATIONS[config.activation]
        widths = (self.encoder.features, *config.hidden)
        self.trunk = nn.Sequential()
        if config.heads == "shared":
            self.trunk, widths = _hidden(widths, activation), widths[-1:]
        self.policy = _mlp(widths, len(low), activation, gain=0.01)
        self.value = _mlp(widths, 1, activation, gain=1.0)
        self.log_std = nn.Parameter(torch.full((len(low),), config.log_std_init))
        self.register_buffer("low", low)
        self.register_buffer("high", high)
        with torch.no_grad():
            steer, gas, brake = config.initial_action
            initial = (steer, gas - brake) if config.pedals == "one" else (steer, gas, brake)
            start = self._distribution_of(torch.zeros(len(initial)))
            self.policy[-1].bias.copy_(start.unsquash(torch.tensor(initial)))
        self.to(memory_format=torch.channels_last)

    def forward(self, pixels: Tensor, u: Tensor, noise: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Log density of stored `u`, entropy by `noise`, and value, all (n,).

        `u` and `noise` are (n, controls).
        """
        features = self._features(pixels)
        distribution = self._distribution(features)
        return distribution.log_prob(u), distribution.entropy(noise), self._value(features)

    def decide(self, pixels: Tensor, noise: Tensor) -> Decision:
        """Sample with standard normal `noise` (n, controls); zeros give the deterministic one."""
        features = self._features(pixels)
        distribution = self._distribution(features)
        u = distribution.sample(noise)
        action = press(distribution.squash(u))
        return Decision(u, action, distribution.log_prob(u), self._value(features))

    def state_value(self, pixels: Tensor) -> Tensor:
        """The value alone, (n,)."""
        return self._value(self._features(pixels))

    def limit_noise(self, elapsed: float) -> None:
        """Set the log-std's upper limit when a share `elapsed` of the budget is spent.

        Call it before collecting: the update's first ratio is 1 only under the same limit.
        """
        highest, final = self.config.log_std_max, self.config.log_std_final
        if final is not None:
            highest += (final - highest) * min(elapsed / self.config.log_std_fade, 1.0)
        self.limits = (self.config.log_std_min, highest)
        self.project()

    @torch.no_grad()
    def project(self) -> None:
        """Put the log-std back inside its limits; call after every optimiser step.

        Clamping only in the forward pass would cut the gradient beyond a limit and leave the
        parameter stuck there.
        """
        self.log_std.clamp_(*self.limits)

    def _features(self, pixels: Tensor) -> Tensor:
        features = self.encoder(pixels)
        with _full_precision(features):
            return self.trunk(features.to(self.log_std.dtype))

    def _distribution(self, features: Tensor) -> SquashedGaussian:
        with _full_precision(features):
            return self._distribution_of(self.policy(features))

    def _distribution_of(self, mean: Tensor) -> SquashedGaussian:
        kind = SquashedGaussian if self.config.squash == "tanh" else ClippedGaussian
        return kind(mean, self.log_std.clamp(*self.limits), self.low, self.high)

    def _value(self, features: Tensor) -> Tensor:
        with _full_precision(features):
            return self.value(features).squeeze(-1)


class PolicyEncoder(nn.Module):
    """Convolutions over uint8 pixels (n, height, width, channels) to features (n, features)."""

    def __init__(self, shape: Sequence[int], config: PolicyConfig) -> None:
        super().__init__()
        size, _, channels = shape
        side = config.map_size(size)
        self.convolutions = nn.ModuleList()
        for out, kernel, stride in zip(
            config.channels, config.kernels, config.strides, strict=True
        ):
            self.convolutions.append(orthogonal(nn.Conv2d(channels, out, kernel, stride)))
            channels = out
        self.features = side * side * channels
        self.activation = _ACTIVATIONS[config.activation]()

    def forward(self, pixels: Tensor) -> Tensor:
        first, *others = self.convolutions
        x = pixels.permute(0, 3, 1, 2).to(first.weight.dtype)
        # Scaling the weights instead of the pixels to [0, 1] saves a pass over the pictures.
        x = self.activation(functional.conv2d(x, first.weight / 255, first.bias, first.stride))
        for convolution in others:
            x = self.activation(convolution(x))
        return x.flatten(1)


def _mlp(
    widths: Sequence[int], outputs: int, activation: type[nn.Module], gain: float
) -> nn.Sequential:
    return _hidden(widths, activation).append(orthogonal(nn.Linear(widths[-1], outputs), gain))


def _hidden(widths: Sequence[int], activation: type[nn.Module]) -> nn.Sequential:
    layers: list[nn.Module] = []
    for inputs, width in pairwise(widths):
        layers += [orthogonal(nn.Linear(inputs, width), math.sqrt(2)), activation()]
    return nn.Sequential(*layers)


def _full_precision(x: Tensor) -> torch.autocast:
    return torch.autocast(x.device.type, enabled=False)
