"""Tracks as compiled code sees them.

A kernel steps worlds on different tracks, so it must reach arrays of different sizes. A
`KernelTrack` therefore carries a `handle`, the addresses and sizes of its immutable arrays;
`open_track` turns it back into arrays inside compiled code. Whoever puts a handle into a kernel's
arguments keeps the `KernelTrack` alive.
"""

from __future__ import annotations

from collections import namedtuple

import numpy as np
from numba import carray, types
from numba.core import cgutils
from numba.extending import intrinsic

from envs.racing.sim.kernel import kernel
from envs.racing.sim.track import GRID_HALF, Track

ARRAYS = "points tiles tile_planes tile_box tile_s centreline grid_start grid_tiles"
TrackArrays = namedtuple("TrackArrays", f"{ARRAYS} count samples length half_width lap_turn")
"""One track as kernels see it: the arrays of `Track`, the edges and boxes of its tiles, the number
of tiles (`count`) and of centreline samples, and the heading change of the centreline over a lap
(`lap_turn`, rad)."""

HANDLE = np.dtype(
    [(name, "i8") for name in ARRAYS.split()]
    + [(name, "i8") for name in ("count", "samples", "grid_size")]
    + [(name, "f8") for name in ("length", "half_width", "lap_turn")]
)
"""Addresses and sizes of one track's arrays."""


@intrinsic
def pointer(_context, address):
    """An int64 address as a pointer that `numba.carray` takes."""

    def cast(_context, builder, _signature, arguments):
        return builder.inttoptr(arguments[0], cgutils.voidptr_t)

    return types.voidptr(types.int64), cast


@kernel
def open_track(h):
    """The arrays behind a HANDLE record."""
    n, m = h.count, h.samples
    return TrackArrays(
        carray(pointer(h.points), (n, 3), np.float64),
        carray(pointer(h.tiles), (n, 4, 2), np.float64),
        carray(pointer(h.tile_planes), (n, 4, 3), np.float64),
        carray(pointer(h.tile_box), (n, 4), np.float64),
        carray(pointer(h.tile_s), (n,), np.float64),
        carray(pointer(h.centreline), (m, 6), np.float64),
        carray(pointer(h.grid_start), (4 * GRID_HALF * GRID_HALF + 1,), np.int32),
        carray(pointer(h.grid_tiles), (h.grid_size,), np.int32),
        n,
        m,
        h.length,
        h.half_width,
        h.lap_turn,
    )


def edge_planes(tiles: np.ndarray) -> np.ndarray:
    """(N, 4, 3) outward unit normals and offsets of the edges of (N, 4, 2) quads."""
    edge = np.roll(tiles, -1, 1) - tiles
    normal = np.stack([edge[..., 1], -edge[..., 0]], -1)
    # A glued seam can have an edge of no length; any normal then does.
    normal /= np.maximum(np.linalg.norm(normal, axis=-1, keepdims=True), 1e-12)
    x, y = tiles[..., 0], tiles[..., 1]
    area = (x * np.roll(y, -1, 1) - np.roll(x, -1, 1) * y).sum(1)
    normal *= np.where(area < 0, -1.0, 1.0)[:, None, None]
    return np.concatenate([normal, (normal * tiles).sum(-1, keepdims=True)], -1)


def write_addresses(arrays: dict[str, np.ndarray], handle: np.ndarray) -> dict[str, np.ndarray]:
    """Write the addresses of arrays into a handle; returns them C-contiguous, to be kept alive."""
    contiguous = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    for name, array in contiguous.items():
        handle[name] = array.ctypes.data
    return contiguous


class KernelTrack:
    """A track with its handle for kernels.

    Attributes:
        track: the `Track`.
        arrays: name -> array behind the handle.
        handle: () HANDLE.
    """

    def __init__(self, track: Track) -> None:
        self.track = track
        low, high = track.tiles.min(1), track.tiles.max(1)
        heading = track.centreline[:, 5]
        arrays = {
            "points": track.points,
            "tiles": track.tiles,
            "tile_planes": edge_planes(track.tiles),
            "tile_box": np.stack([low[:, 0], high[:, 0], low[:, 1], high[:, 1]], 1),
            "tile_s": track.tile_s,
            "centreline": track.centreline,
            "grid_start": track.grid_start,
            "grid_tiles": track.grid_tiles,
        }
        self.handle = np.zeros((), HANDLE)
        self.arrays = write_addresses(arrays, self.handle)
        self.handle["count"] = len(track)
        self.handle["samples"] = len(track.centreline)
        self.handle["grid_size"] = len(track.grid_tiles)
        self.handle["length"] = track.length
        self.handle["half_width"] = track.half_width
        # A closed loop turns by whole circles.
        self.handle["lap_turn"] = 2 * np.pi * np.round((heading[-1] - heading[0]) / (2 * np.pi))

    def __reduce__(self) -> tuple:
        # The handle holds addresses of this process, so another one is made from the track.
        return type(self), (self.track,)

    def __deepcopy__(self, memo: dict) -> KernelTrack:
        return self  # immutable, and shared between worlds in any case
