"""Two thousand resets with ever new tracks leave memory as it was."""

import gc
import os

import numpy as np
import pytest

from envs.racing import EnvConfig, RacingVectorEnv

STATM = "/proc/self/statm"


def resident_bytes() -> int:
    with open(STATM) as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(not os.path.exists(STATM), reason="reads resident memory from /proc")
@pytest.mark.parametrize("tracks", ["carracing", "procedural"])
def test_a_thousand_resets_do_not_grow_memory(tracks):
    config = EnvConfig(tracks=tracks, track_pool=2, track_reuse=10, max_ticks=2, frame_stack=2)
    env = RacingVectorEnv(8, config, seed=1)
    actions = np.tile(np.float32([0.1, 0.5, 0.0]), (8, 1))

    def drive(resets: int) -> None:
        done = 0
        while done < resets:
            env.reset()
            env.step(actions)
            done += 8
            if done < resets:
                _, _, _, truncated, _ = env.step(actions)  # resets them all by itself
                assert truncated.all()
                done += 8

    drive(400)
    gc.collect()
    before = resident_bytes()
    drive(1000)
    gc.collect()
    grown = resident_bytes() - before
    env.close()
    # One painted track is two and a half megabytes; some two dozen were made and dropped.
    assert grown < 12e6, f"{grown / 1e6:.1f} MB more after 1,000 resets"


@pytest.mark.skipif(not os.path.exists(STATM), reason="reads resident memory from /proc")
def test_environments_leave_nothing_behind():
    config = EnvConfig(track_pool=2)

    def use() -> None:
        env = RacingVectorEnv(4, config, seed=2)
        env.reset()
        env.step(np.zeros((4, 3)))
        env.close()

    for _ in range(10):
        use()
    gc.collect()
    before = resident_bytes()
    for _ in range(25):
        use()
    gc.collect()
    grown = resident_bytes() - before
    assert grown < 12e6, f"{grown / 1e6:.1f} MB more after 25 environments"
