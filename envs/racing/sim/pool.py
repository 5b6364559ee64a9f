"""Painted tracks: shared between worlds, built ahead of need and off the stepping thread.

A kernel steps worlds on different tracks, so it must reach arrays of different sizes. A
`PaintedTrack` therefore carries a `handle`, the addresses and sizes of its immutable arrays;
`open_track` turns it back into arrays inside compiled code. Whoever puts a handle into a kernel's
arguments keeps the `PaintedTrack` alive.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, namedtuple
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
from numba import carray, types
from numba.core import cgutils
from numba.extending import intrinsic

from envs.racing.pixels.texture import LEVELS, paint, texture_size
from envs.racing.sim.kernel import kernel
from envs.racing.sim.track import GRID_HALF, Track

TrackArrays = namedtuple(
    "TrackArrays",
    "points tiles tile_planes tile_box tile_s shade centreline grid_start grid_tiles texture levels"
    " count samples length half_width turn",
)
"""One track as kernels see it; `turn` is the heading change of the centreline over a lap."""

HANDLE = np.dtype(
    [(name, "i8") for name in TrackArrays._fields[:11]]
    + [
        ("count", "i8"),
        ("samples", "i8"),
        ("grid_size", "i8"),
        ("texels", "i8"),
        ("length", "f8"),
        ("half_width", "f8"),
        ("turn", "f8"),
    ]
)


@intrinsic
def _pointer(_context, address):
    def cast(_context, builder, _signature, arguments):
        return builder.inttoptr(arguments[0], cgutils.voidptr_t)

    return types.voidptr(types.int64), cast


@kernel
def open_track(h):
    """The arrays behind a HANDLE record."""
    n, m = h.count, h.samples
    return TrackArrays(
        carray(_pointer(h.points), (n, 3), np.float64),
        carray(_pointer(h.tiles), (n, 4, 2), np.float64),
        carray(_pointer(h.tile_planes), (n, 4, 3), np.float64),
        carray(_pointer(h.tile_box), (n, 4), np.float64),
        carray(_pointer(h.tile_s), (n,), np.float64),
        carray(_pointer(h.shade), (n,), np.uint8),
        carray(_pointer(h.centreline), (m, 6), np.float64),
        carray(_pointer(h.grid_start), (4 * GRID_HALF * GRID_HALF + 1,), np.int32),
        carray(_pointer(h.grid_tiles), (h.grid_size,), np.int32),
        carray(_pointer(h.texture), (h.texels,), np.uint16),
        carray(_pointer(h.levels), (LEVELS, 6), np.float64),
        n,
        m,
        h.length,
        h.half_width,
        h.turn,
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


class PaintedTrack:
    """A track with its texture and its handle for kernels."""

    def __init__(self, track: Track) -> None:
        self.track = track
        texture = np.empty(texture_size(track), np.uint16)
        levels = paint(track, texture)
        low, high = track.tiles.min(1), track.tiles.max(1)
        heading = track.centreline[:, 5]
        self.arrays = {
            "points": track.points,
            "tiles": track.tiles,
            "tile_planes": edge_planes(track.tiles),
            "tile_box": np.stack([low[:, 0], high[:, 0], low[:, 1], high[:, 1]], 1),
            "tile_s": track.tile_s,
            "shade": track.shade,
            "centreline": track.centreline,
            "grid_start": track.grid_start,
            "grid_tiles": track.grid_tiles,
            "texture": texture,
            "levels": levels,
        }
        self.handle = np.zeros((), HANDLE)
        for name, array in self.arrays.items():
            self.arrays[name] = array = np.ascontiguousarray(array)
            self.handle[name] = array.ctypes.data
        self.handle["count"] = len(track)
        self.handle["samples"] = len(track.centreline)
        self.handle["grid_size"] = len(track.grid_tiles)
        self.handle["texels"] = len(texture)
        self.handle["length"] = track.length
        self.handle["half_width"] = track.half_width
        # A closed loop turns by whole circles.
        self.handle["turn"] = 2 * np.pi * np.round((heading[-1] - heading[0]) / (2 * np.pi))

    def __reduce__(self) -> tuple:
        # The handle holds addresses of this process, so another one paints the track anew.
        return PaintedTrack, (self.track,)

    def __deepcopy__(self, memo: dict) -> PaintedTrack:
        return self  # immutable, and shared between worlds in any case


class TrackPool:
    """Least-recently-used cache of painted tracks with a builder thread.

    Args:
        build: makes the track of a key; called on the builder thread as well.
        capacity: tracks kept beyond those that somebody holds.
    """

    def __init__(self, build: Callable[[tuple], PaintedTrack], capacity: int) -> None:
        self._build = build
        self._capacity = max(1, capacity)
        self._tracks: OrderedDict[tuple, Future] = OrderedDict()
        self._lock = threading.Lock()
        self._builder: ThreadPoolExecutor | None = None

    def __reduce__(self) -> tuple:
        return TrackPool, (self._build, self._capacity)  # threads stay; a copy builds its tracks

    def get(self, key: tuple) -> PaintedTrack:
        """The track of a key; built here unless it is ready or under way."""
        with self._lock:
            future = self._tracks.get(key)
            mine = future is None or (not future.running() and future.cancel())
            if mine:
                future = self._tracks[key] = Future()
                future.set_running_or_notify_cancel()  # others wait for it and cannot cancel it
            self._tracks.move_to_end(key)
            while len(self._tracks) > self._capacity:
                self._tracks.popitem(last=False)
        if mine:
            try:
                future.set_result(self._build(key))
            except BaseException as error:
                future.set_exception(error)
        try:
            return future.result()
        except BaseException:
            with self._lock:
                # Whoever asks next tries again, unless somebody already does.
                if self._tracks.get(key) is future:
                    del self._tracks[key]
            raise

    def prefetch(self, key: tuple) -> None:
        """Have the builder thread make a track that will be asked for later."""
        with self._lock:
            if key in self._tracks:
                return
            if self._builder is None:
                self._builder = ThreadPoolExecutor(1, thread_name_prefix="track-builder")
            self._tracks[key] = self._builder.submit(self._build, key)
            while len(self._tracks) > self._capacity:
                self._tracks.popitem(last=False)

    def close(self) -> None:
        """Stop the builder thread."""
        if self._builder is not None:
            self._builder.shutdown(wait=True, cancel_futures=True)
            self._builder = None
