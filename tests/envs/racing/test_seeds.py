"""Seeds name tracks, the real game's for every seed that it takes, and decide all that follows."""

import copy

import gymnasium
import numpy as np
import pytest
from gymnasium.utils import seeding

from common.errors import UserError
from envs.racing.parallel_env import RacingParallelEnv
from envs.racing.sim.track import carracing_points
from tests.envs.racing.forms import GAS, IDS, parallel, several, single

SEEDS = [0, 99, 2**31, 2**32 - 1, 2**63 - 1, 2**63, 2**64, 10**30]


def track_points(env) -> np.ndarray:
    return env.unwrapped._vector.engine.tracks[0].track.points


@pytest.mark.parametrize("seed", SEEDS)
def test_every_seed_that_gymnasium_takes_names_its_track(seed):
    generator, _ = seeding.np_random(seed)
    with gymnasium.make(IDS[0]) as env:
        _, info = env.reset(seed=seed)
        np.testing.assert_array_equal(track_points(env), carracing_points(seed))
        assert info["track_seed"] == seed
        state = env.unwrapped.snapshot()
        again = copy.deepcopy(env.unwrapped)
        again.reset(seed=1)
        again.restore(state)
        assert again.step(GAS)[-1]["track_seed"] == seed
        assert env.unwrapped.np_random.random() == generator.random()


@pytest.mark.parity
@pytest.mark.parametrize("seed", [2**32 - 1, 2**63, 2**64, 2**64 + 1, 10**30])
def test_large_seeds_make_the_tracks_of_the_real_game(seed):
    from envs.racing.reference.drive import make_reference
    from envs.racing.reference.parity import track_difference

    real = make_reference()
    assert max(track_difference(real, seed).values()) < 1e-9
    real.close()


@pytest.mark.parametrize("seed", [-1, 1.5, True, "7", [3]])
def test_what_is_no_seed_is_refused(seed):
    for env in (gymnasium.make(IDS[0]).unwrapped, RacingParallelEnv(2)):
        with pytest.raises(UserError, match="a seed is a whole number from 0 on"):
            env.reset(seed=seed)
        env.close()


@pytest.mark.parametrize("mode", [None, "sync", "async"])
def test_large_seeds_pass_through_every_vector_form(mode):
    env = gymnasium.make_vec(IDS[0], num_envs=2, vectorization_mode=mode, max_ticks=2)
    _, info = env.reset(seed=2**63 - 1)
    assert info["track_seed"].tolist() == [2**63 - 1, 2**63]
    for _ in range(4):  # over an end: a drawn seed beside, or in place of, the large one
        *_, info = env.step(np.stack([GAS, GAS]))
    assert max(info["track_seed"].tolist()) < 10**6
    env.close()


@pytest.mark.parametrize("make", [single, several, parallel])
def test_a_seed_decides_all_that_follows(make):
    """Sequences of resets: equal for equal seeds, disjoint for others, random without one."""

    def sequence(seed, before=0):
        env, reset = make(track_pool=0)
        for _ in range(before):
            reset()
        tracks = reset(seed)
        for _ in range(4):
            tracks += reset()
        env.close()
        return tracks

    first = sequence(100)
    assert first == sequence(100) == sequence(100, before=2)
    sequences = [first[len(first) // 5 :]]
    sequences += [sequence(seed)[len(first) // 5 :] for seed in (101, 102)]
    sequences += [sequence(None), sequence(None)]
    for i, one in enumerate(sequences):
        assert len(set(one)) == len(one)
        for other in sequences[:i]:
            assert not set(one) & set(other)


def test_a_list_of_seeds_is_that_many_single_environments():
    seeds = [5, 7, 2**40]
    env, reset = several(direction="both")
    rows = [reset(seeds)] + [reset() for _ in range(3)]
    directions = [track.track.direction for track in env.engine.tracks]
    for index, seed in enumerate(seeds):
        alone, reset_alone = single(direction="both")
        tracks = reset_alone(seed) + [reset_alone()[0] for _ in range(3)]
        assert tracks == [row[index] for row in rows]
        assert alone._vector.engine.tracks[0].track.direction == directions[index]
        alone.close()
    env.close()
