"""A cache of tracks: shared between worlds, built ahead of need and off the stepping thread."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

T = TypeVar("T")


class TrackPool(Generic[T]):
    """Least-recently-used cache of tracks with a builder thread.

    Args:
        build: makes the track of a key; called on the builder thread as well.
        capacity: tracks kept beyond those that somebody holds.
    """

    def __init__(self, build: Callable[[tuple], T], capacity: int) -> None:
        self._build = build
        self._capacity = max(1, capacity)
        self._tracks: OrderedDict[tuple, Future] = OrderedDict()
        self._lock = threading.Lock()
        self._builder: ThreadPoolExecutor | None = None

    def __reduce__(self) -> tuple:
        return TrackPool, (self._build, self._capacity)  # threads stay; a copy builds its tracks

    def get(self, key: tuple) -> T:
        """The track of a key; built here unless it is ready or under way."""
        with self._lock:
            future = self._tracks.get(key)
            builds_here = future is None or (not future.running() and future.cancel())
            if builds_here:
                future = self._tracks[key] = Future()
                future.set_running_or_notify_cancel()  # others wait for it and cannot cancel it
            self._tracks.move_to_end(key)
            while len(self._tracks) > self._capacity:
                self._tracks.popitem(last=False)
        if builds_here:
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
