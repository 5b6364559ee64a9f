"""A painted track: a track with its texture, and a handle through which kernels read it."""

from __future__ import annotations

from collections import namedtuple

import numpy as np
from numba import carray

from envs.racing.pixels.texture import LEVELS, LINE, paint, texture_size
from envs.racing.sim.handles import KernelTrack, pointer, write_addresses
from envs.racing.sim.kernel import kernel
from envs.racing.sim.track import Track

Picture = namedtuple("Picture", "texture levels shade")
"""A painted track as kernels see it: texel codes, the table of levels (see `texture.paint`), and
the grey shade of every tile that no car has touched."""

PICTURE = np.dtype([(name, "i8") for name in (*Picture._fields, "texels", "tiles")])
"""Addresses and sizes of one picture's arrays."""


@kernel
def open_picture(h):
    """The arrays behind a PICTURE record."""
    return Picture(
        carray(pointer(h.texture), (h.texels,), np.uint16),
        carray(pointer(h.levels), (LEVELS, 6), np.float64),
        carray(pointer(h.shade), (h.tiles,), np.uint8),
    )


def _aligned(texels: int) -> np.ndarray:
    """(texels,) uint16, aligned to a cache line."""
    room = np.empty(texels + LINE, np.uint16)
    first = -room.ctypes.data // room.itemsize % LINE
    return room[first : first + texels]


class PaintedTrack(KernelTrack):
    """A track with its texture and its handles for kernels.

    Attributes:
        picture: () PICTURE, the handle of the texture. `KernelTrack` describes the others.
    """

    def __init__(self, track: Track) -> None:
        super().__init__(track)
        texture = _aligned(texture_size(track))
        levels = paint(track, texture)
        self.picture = np.zeros((), PICTURE)
        arrays = {"texture": texture, "levels": levels, "shade": track.shade}
        self._picture_arrays = write_addresses(arrays, self.picture)
        self.picture["texels"] = len(texture)
        self.picture["tiles"] = len(track)
