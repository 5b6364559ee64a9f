"""The pool of tracks: built once, shared, replaced, and never stuck on a failure."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from envs.racing.sim.pool import TrackPool


class Builder:
    """Notes who built what where."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.built: list[tuple] = []
        self.threads: list[str] = []
        self.seconds = seconds
        self.fails: set = set()

    def __call__(self, key):
        self.built.append(key)
        self.threads.append(threading.current_thread().name)
        time.sleep(self.seconds)
        if key in self.fails:
            raise ValueError(f"no track {key}")
        return f"track {key}"


def test_a_key_is_built_once_and_kept_while_it_is_used():
    build = Builder()
    pool = TrackPool(build, 2)
    assert [pool.get(key) for key in (1, 2, 1, 2, 1)] == ["track 1", "track 2"] * 2 + ["track 1"]
    assert build.built == [1, 2]
    pool.get(3)  # puts out 2, which was used longest ago
    pool.get(1)
    assert build.built == [1, 2, 3]
    pool.get(2)
    assert build.built == [1, 2, 3, 2]
    pool.close()


def test_a_prefetched_track_is_built_beside_and_waited_for():
    build = Builder(0.05)
    pool = TrackPool(build, 4)
    pool.prefetch(1)
    pool.prefetch(1)
    assert pool.get(1) == "track 1"
    assert build.built == [1]
    assert build.threads[0].startswith("track-builder")
    pool.close()


def test_what_is_needed_now_does_not_queue_behind_what_is_needed_later():
    build = Builder(0.05)
    pool = TrackPool(build, 16)
    for key in range(10):
        pool.prefetch(key)
    assert pool.get(9) == "track 9"
    assert len(build.built) < 5, "waited for the whole queue"
    pool.close()
    assert build.built.count(9) == 1


def test_many_askers_share_one_build():
    build = Builder(0.05)
    pool = TrackPool(build, 4)
    with ThreadPoolExecutor(8) as askers:
        assert set(askers.map(pool.get, [7] * 8)) == {"track 7"}
    assert build.built == [7]
    pool.close()


@pytest.mark.parametrize("ahead", [False, True], ids=["asked", "prefetched"])
def test_a_failure_is_told_and_then_tried_again(ahead):
    build = Builder()
    build.fails.add(1)
    pool = TrackPool(build, 4)
    if ahead:
        pool.prefetch(1)
        time.sleep(0.05)
    for _ in range(2):
        with pytest.raises(ValueError, match="no track 1"):
            pool.get(1)
    build.fails.clear()
    assert pool.get(1) == "track 1"
    pool.close()


def test_a_closed_pool_still_builds_what_is_asked():
    build = Builder()
    pool = TrackPool(build, 2)
    pool.prefetch(1)
    pool.close()
    pool.close()
    assert pool.get(2) == "track 2"
