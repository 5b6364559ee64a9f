"""Latents to frames.

The last layer makes the 4 x 4 pixels of every cell of a 24 x 24 map at once, so the largest map
that a convolution works on is 16 times smaller than the frame. The loss is taken on those patches,
which saves putting the frames together.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from rssm.model.encoder import PATCH, map_size


class Decoder(nn.Module):
    """(N, features) to frames.

    Args:
        features: length of a latent state.
        channels: of the encoder that this one mirrors.
        size: height and width of the frames.
        depth: channels of the frames.
    """

    def __init__(
        self, features: int, channels: tuple[int, ...], size: int = 96, depth: int = 3
    ) -> None:
        super().__init__()
        self.depth = depth
        self.side = map_size(size, len(channels))
        self.inputs = nn.Linear(features, channels[-1] * self.side**2)
        layers: list[nn.Module] = [nn.SiLU()]
        for before, after in zip(channels[:0:-1], channels[-2::-1], strict=True):
            layers += [nn.ConvTranspose2d(before, after, 4, 2, 1), nn.SiLU()]
        layers += [nn.Conv2d(channels[0], PATCH**2 * depth, 3, padding=1)]
        self.convolutions = nn.Sequential(*layers).to(memory_format=torch.channels_last)

    def forward(self, features: Tensor) -> Tensor:
        """Patches (N, rows, columns, 16 depth) of frames, values around [-0.5, 0.5]."""
        x = self.inputs(features).unflatten(-1, (self.side, self.side, -1)).permute(0, 3, 1, 2)
        return self.convolutions(x).permute(0, 2, 3, 1)

    def frames(self, features: Tensor) -> Tensor:
        """(..., size, size, depth) float in [0, 1]."""
        patches = self(features.flatten(0, -2))
        return (
            from_patches(patches, self.depth).add(0.5).clamp(0, 1).unflatten(0, features.shape[:-1])
        )


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
