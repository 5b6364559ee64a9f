"""Frames to embeddings: convolutions that see 96 x 96 pixels as NHWC bytes."""

from __future__ import annotations

import torch
from torch import Tensor, nn

PATCH = 4
"""Stride of the first convolution, and of the decoder's last step."""


def map_size(size: int, layers: int) -> int:
    """Height and width after `layers` convolutions of frames of size x size pixels."""
    return size // PATCH // 2 ** (layers - 1)


class Encoder(nn.Module):
    """(N, 96, 96, 3) uint8 to (N, features).

    The first convolution takes large strides, as most of the work is where maps are large: at equal
    cost it is faster on a CPU than four that halve (`scripts/bench_rssm.py`).

    Args:
        channels: of each convolution.
        size: height and width of the frames.
        depth: channels of the frames.
    """

    def __init__(self, channels: tuple[int, ...], size: int = 96, depth: int = 3) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        kernel, stride = 2 * PATCH, PATCH
        for count in channels:
            layers += [nn.Conv2d(depth, count, kernel, stride, (kernel - stride) // 2), nn.SiLU()]
            depth, kernel, stride = count, 4, 2
        self.convolutions = nn.Sequential(*layers).to(memory_format=torch.channels_last)
        self.features = channels[-1] * map_size(size, len(channels)) ** 2

    def forward(self, frames: Tensor) -> Tensor:
        # NHWC memory seen as NCHW is what torch calls channels_last: no copy.
        x = frames.permute(0, 3, 1, 2).to(self.convolutions[0].weight.dtype) / 255 - 0.5
        return self.convolutions(x).permute(0, 2, 3, 1).flatten(1)
