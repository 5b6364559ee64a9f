"""Latents to frames: what every decoder offers, and the one that draws with convolutions.

`DECODERS` names the kinds for `decoder.kind`. A decoder of your own subclasses `Decoder` and adds
itself with `DECODERS[name] = its class` (docs/extend.md has an example).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from rssm.config import MOTION, ModelConfig
from rssm.model.encoder import PATCH, map_size


class DecoderInput(NamedTuple):
    """What N frames are drawn from. Only what a decoder `takes` is there besides the latents.

    Attributes:
        latents: (N, deter + latent).
        motion: (N, 3), the car's motion in the step that led to each frame, in the squashed
            deviations of `Heads.squash_motion`.
        pose: (N, 3), the car's motion from the first frame to each frame, in the first frame's
            axes: units to the left, units ahead, rad counter-clockwise.
        first_frame: (N, size, size, channels) uint8, the frame that `pose` counts from.
    """

    latents: Tensor
    motion: Tensor | None = None
    pose: Tensor | None = None
    first_frame: Tensor | None = None

    def rows(self, chosen: slice) -> DecoderInput:
        """The input of some of the frames."""
        return DecoderInput(*(None if part is None else part[chosen] for part in self))


class Decoder(nn.Module):
    """Draws frames and measures their error. Subclasses write `frames` and, if theirs, `loss`.

    Attributes:
        takes: names among motion, pose and first_frame that `DecoderInput` must have.
    """

    takes: ClassVar[frozenset[str]] = frozenset()

    def __init__(self, config: ModelConfig, features: int) -> None:
        """Build for latents of `features` numbers and the frames that `config` describes."""
        super().__init__()

    def frames(self, inputs: DecoderInput) -> Tensor:
        """Frames (N, size, size, channels) float in [0, 1]."""
        raise NotImplementedError

    def loss(
        self,
        inputs: DecoderInput,
        frames: Tensor,
        features: Callable[[Tensor], Tensor] | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Errors against the true frames, summed over them.

        Args:
            inputs: of N frames.
            frames: (N, size, size, channels) uint8.
            features: makes features (N, ...) of frames (N, size, size, channels) around 0, for the
                perceptual distance; without it that is 0.

        Returns:
            The squared error summed over frames, pixels and channels in [0, 1] units; and the sum
            over frames of the mean squared distance of their features.
        """
        drawn = self.frames(inputs) - 0.5
        target = frames.to(drawn.dtype) / 255 - 0.5
        error = (drawn - target).square().sum()
        if features is None:
            return error, error.new_zeros(())
        return error, perceptual_distance(features, drawn, target)


def perceptual_distance(
    features: Callable[[Tensor], Tensor], drawn: Tensor, target: Tensor
) -> Tensor:
    """Sum over frames of the mean squared distance between the features of two sets of frames."""
    drawn_features, true_features = features(drawn), features(target)
    return (drawn_features - true_features.detach()).square().mean() * len(drawn)


class ConvolutionalDecoder(Decoder):
    """Transposed convolutions, mirroring the encoder.

    The last layer makes the 4 x 4 pixels of every cell of a 24 x 24 map at once, so the largest map
    that a convolution works on is 16 times smaller than the frame. The loss is taken on those
    patches, which saves putting the frames together.
    """

    def __init__(self, config: ModelConfig, features: int) -> None:
        super().__init__(config, features)
        channels, depth = config.network.channels, config.frame_channels
        self.takes = frozenset({"motion"}) if config.decoder.motion else frozenset()
        self.depth = depth
        self.side = map_size(config.frame_size, len(channels))
        inputs = features + (len(MOTION) if config.decoder.motion else 0)
        self.inputs = nn.Linear(inputs, channels[-1] * self.side**2)
        layers: list[nn.Module] = [nn.SiLU()]
        for before, after in zip(channels[:0:-1], channels[-2::-1], strict=True):
            layers += [nn.ConvTranspose2d(before, after, 4, 2, 1), nn.SiLU()]
        layers += [nn.Conv2d(channels[0], PATCH**2 * depth, 3, padding=1)]
        self.convolutions = nn.Sequential(*layers).to(memory_format=torch.channels_last)

    def forward(self, inputs: DecoderInput) -> Tensor:
        """Patches (N, rows, columns, 16 channels) of frames, values around [-0.5, 0.5]."""
        x = inputs.latents
        if "motion" in self.takes:
            x = torch.cat((x, inputs.motion), -1)
        x = self.inputs(x).unflatten(-1, (self.side, self.side, -1)).permute(0, 3, 1, 2)
        return self.convolutions(x).permute(0, 2, 3, 1)

    def frames(self, inputs: DecoderInput) -> Tensor:
        return from_patches(self(inputs), self.depth).add(0.5).clamp(0, 1)

    def loss(
        self,
        inputs: DecoderInput,
        frames: Tensor,
        features: Callable[[Tensor], Tensor] | None = None,
    ) -> tuple[Tensor, Tensor]:
        patches = self(inputs)
        target = to_patches(frames).to(patches.dtype) / 255 - 0.5
        error = (patches - target).square().sum()
        if features is None:
            return error, error.new_zeros(())
        drawn, true = (from_patches(each, self.depth) for each in (patches, target))
        return error, perceptual_distance(features, drawn, true)


DECODERS: dict[str, type[Decoder]] = {"convolutional": ConvolutionalDecoder}
"""Kind of decoder by the name that `decoder.kind` gives it."""


def build_decoder(config: ModelConfig, features: int) -> Decoder:
    """The decoder that `config.decoder` asks for; `ValueError` if there is none of that kind or it
    takes the car's motion and no head predicts it."""
    kind = config.decoder.kind
    if kind not in DECODERS:
        raise ValueError(f"decoder.kind is one of {', '.join(sorted(DECODERS))}, not {kind!r}")
    decoder = DECODERS[kind](config, features)
    if decoder.takes & {"motion", "pose"} and not set(MOTION) <= set(config.heads.telemetry):
        raise ValueError("this decoder needs the motion heads: heads.motion=true")
    return decoder


def to_patches(frames: Tensor) -> Tensor:
    """(N, H, W, C) to (N, H / 4, W / 4, 16 C), any dtype."""
    n, height, width, depth = frames.shape
    cells = frames.reshape(n, height // PATCH, PATCH, width // PATCH, PATCH, depth)
    return cells.transpose(2, 3).reshape(n, height // PATCH, width // PATCH, PATCH**2 * depth)


def from_patches(patches: Tensor, depth: int) -> Tensor:
    """The inverse of `to_patches` for frames of `depth` channels."""
    n, rows, columns, _ = patches.shape
    cells = patches.reshape(n, rows, columns, PATCH, PATCH, depth)
    return cells.transpose(2, 3).reshape(n, rows * PATCH, columns * PATCH, depth)
