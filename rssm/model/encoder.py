"""Frames to embeddings: convolutions that see 96 x 96 pixels as NHWC bytes."""

from __future__ import annotations

import torch
from torch import Tensor, nn

PATCH = 4
"""Stride of the first convolution, and of the decoder's last step."""

CONTRAST = 4.0
"""Of the change, which is small in most pixels, against the frame itself."""


def map_size(size: int, layers: int) -> int:
    """Height and width after `layers` convolutions of frames of size x size pixels."""
    return size // PATCH // 2 ** (layers - 1)


class Encoder(nn.Module):
    """Frames (N, 96, 96, 3) uint8, with the ones before if asked for, to (N, features).

    The first convolution takes large strides, as most of the work is where maps are large: at equal
    cost it is faster on a CPU than four that halve (`scripts/bench_rssm.py`).

    Args:
        channels: of each convolution.
        size: height and width of the frames.
        depth: channels of the frames.
        see_change: one more channel is the change of green since the frame before.
    """

    def __init__(
        self,
        channels: tuple[int, ...],
        size: int = 96,
        depth: int = 3,
        see_change: bool = False,
    ) -> None:
        super().__init__()
        self.see_change = see_change
        layers: list[nn.Module] = []
        depth += see_change
        kernel, stride = 2 * PATCH, PATCH
        for count in channels:
            layers += [nn.Conv2d(depth, count, kernel, stride, (kernel - stride) // 2), nn.SiLU()]
            depth, kernel, stride = count, 4, 2
        self.convolutions = nn.Sequential(*layers).to(memory_format=torch.channels_last)
        self.features = channels[-1] * map_size(size, len(channels)) ** 2

    def forward(self, frames: Tensor, before: Tensor | None = None) -> Tensor:
        kind = self.convolutions[0].weight.dtype
        if self.see_change:
            x = self._with_change(frames, frames if before is None else before, kind)
        else:
            x = frames.to(kind) / 255 - 0.5
        # NHWC memory seen as NCHW is what torch calls channels_last: no copy.
        x = x.permute(0, 3, 1, 2)
        return self.convolutions(x).permute(0, 2, 3, 1).flatten(1)

    @staticmethod
    def _with_change(frames: Tensor, before: Tensor, kind: torch.dtype) -> Tensor:
        depth = frames.shape[-1]
        green = depth // 2
        # Filled in place: putting the channels together afterwards costs as much as convolving.
        x = torch.empty(*frames.shape[:-1], depth + 1, dtype=kind, device=frames.device)
        x[..., :depth] = frames
        x[..., depth] = frames[..., green]
        x[..., depth] -= before[..., green]
        last = torch.arange(depth + 1, device=frames.device) == depth
        x *= torch.where(last, CONTRAST / 255, 1 / 255).to(kind)
        return x.sub_(torch.where(last, 0.0, 0.5).to(kind))
