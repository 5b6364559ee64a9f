"""The batched form: Gymnasium's SAME_STEP and DISABLED contracts, seeds, and errors for people."""

import re

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from common.errors import UserError
from common.seeding import SPLITS
from common.telemetry import TELEMETRY
from envs.racing import EnvConfig, RacingVectorEnv, RewardConfig
from envs.racing.score.terms import TERMS
from envs.racing.sim.schedule import START_OFFSET, START_SPEED
from envs.racing.sim.track import PLAYFIELD
from tests.envs.racing.driving import place

TRAIN = SPLITS["train"][0]
STILL = np.zeros((3, 3), np.float32)
GAS = np.tile(np.array([0.0, 0.4, 0.0], np.float32), (3, 1))


@pytest.fixture
def make():
    made = []

    def create(num_envs=3, config=None, **options):
        env = RacingVectorEnv(num_envs, config, **({"seed": 0} | options))
        made.append(env)
        return env

    yield create
    for env in made:
        env.close()


def test_it_is_a_vector_env(make):
    env = make()
    assert isinstance(env, gymnasium.vector.VectorEnv)
    assert env.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    assert make(autoreset=False).metadata["autoreset_mode"] is AutoresetMode.DISABLED
    observation, info = env.reset()
    assert observation in env.observation_space
    assert env.single_observation_space.shape == (96, 96, 3)
    assert env.single_action_space.low.tolist() == [-1, 0, 0]
    assert env.single_action_space.high.tolist() == [1, 1, 1]
    observation, reward, terminated, truncated, info = env.step(env.action_space.sample())
    assert observation in env.observation_space
    assert reward.dtype == np.float32 and reward.shape == (3,)
    assert terminated.dtype == truncated.dtype == bool
    assert {*TELEMETRY, "world_id", "agent_id", "active", "track_seed"} <= set(info)
    for name in TELEMETRY:
        assert info[name].dtype == np.float32 and info[name].shape == (3,), name
    assert list(info["reward_terms"]) == list(TERMS)
    assert all(term.shape == (3,) for term in info["reward_terms"].values())
    assert not {"final_obs", "final_info", "episode_statistics"} & set(info)


@pytest.mark.parametrize(
    ("options", "shape"),
    [
        ({}, (96, 96, 3)),
        ({"size": 64}, (64, 64, 3)),
        ({"grey": True}, (1, 96, 96)),
        ({"grey": True, "frame_stack": 4}, (4, 96, 96)),
        ({"frame_stack": 2, "size": 64}, (2, 64, 64, 3)),
    ],
)
def test_observations_have_the_shape_of_their_spec(make, options, shape):
    env = make(2, EnvConfig(**options))
    assert env.reset()[0].shape == (2, *shape)
    assert env.step(STILL[:2])[0].shape == (2, *shape)
    assert EnvConfig(**options).observation.shape == shape


def test_the_info_of_a_step_is_kept_by_the_next(make):
    env = make()
    env.reset()
    first = env.step(GAS)[4]
    copies = {name: first[name].copy() for name in TELEMETRY}
    env.step(GAS)
    assert all(np.array_equal(first[name], copies[name]) for name in TELEMETRY)


def test_same_step_autoreset(make):
    """The step that ends an episode returns the next one's first frame, the last in final_obs."""
    env = make(config=EnvConfig(max_ticks=12), track_seeds=[TRAIN, TRAIN + 1, TRAIN + 2])
    twin = make(
        config=EnvConfig(max_ticks=12), track_seeds=[TRAIN, TRAIN + 1, TRAIN + 2], autoreset=False
    )
    env.reset()
    twin.reset()
    returns = np.zeros(3)
    for _ in range(5):
        returns += env.step(GAS)[1]
        twin.step(GAS)
    for e in (env, twin):
        place(e.engine, PLAYFIELD + 1, 0.0, 0.3, world=1)
    observation, reward, terminated, truncated, info = env.step(GAS)
    last, last_reward, *_, last_info = twin.step(GAS)
    last = last.copy()
    returns += reward
    assert terminated.tolist() == [False, True, False] and not truncated.any()
    assert np.array_equal(reward, last_reward), "the reward is the old episode's"
    assert reward[1] == -100
    assert info["_final_obs"].tolist() == info["_final_info"].tolist() == terminated.tolist()
    assert info["final_obs"][0] is None and info["final_obs"][2] is None
    assert np.array_equal(info["final_obs"][1], last[1])
    assert np.array_equal(observation[[0, 2]], last[[0, 2]]), "others drive on"
    # World 1 is at the start of the next track in its list, and its info says so.
    fresh = make(1, track_seeds=[TRAIN + 1])
    first, first_info = fresh.reset()
    assert info["track_seed"].tolist() == [TRAIN, TRAIN + 1, TRAIN + 2]
    assert np.array_equal(observation[1], first[0])
    for name in TELEMETRY:
        assert info[name][1] == first_info[name][0]
        assert info["final_info"][name][1] == last_info[name][1]
        assert info[name][0] == last_info[name][0]
    assert info["final_info"]["x"][1] > PLAYFIELD > info["x"][1]
    assert info["reward_terms"]["playfield"].tolist() == [0, -100, 0], "terms explain this reward"
    # Statistics are of the episode that ended.
    assert info["episode_statistics"]["length"][1] == 6
    assert info["episode_statistics"]["return"][1] == pytest.approx(returns[1], abs=1e-3)
    assert not info["episode_statistics"]["finished"][1] and np.isnan(
        info["episode_statistics"]["lap_time"][1]
    )
    # What was handed out survives the next step.
    copy = info["final_obs"][1].copy()
    env.step(GAS)
    assert np.array_equal(info["final_obs"][1], copy)


def test_truncation_is_not_termination(make):
    env = make(config=EnvConfig(max_ticks=4))
    env.reset()
    for tick in range(1, 13):
        _, _, terminated, truncated, info = env.step(GAS)
        assert not terminated.any()
        assert truncated.all() == (tick % 4 == 0)
        assert ("final_obs" in info) == (tick % 4 == 0)
        assert info["active"].all()
        if tick % 4 == 0:
            assert (info["episode_statistics"]["length"] == 4).all()
            assert (info["progress"] == 0).all()


def test_stacks_start_anew_with_an_episode(make):
    env = make(1, EnvConfig(frame_stack=3, grey=True, max_ticks=5))
    env.reset()
    for _ in range(5):
        observation, _, _, truncated, info = env.step(GAS[:1])
    assert truncated[0]
    final = info["final_obs"][0]
    assert not np.array_equal(final[0], final[2])
    assert np.array_equal(observation[0, 0], observation[0, 2])
    follow = env.step(GAS[:1])[0]
    assert np.array_equal(follow[0, 0], follow[0, 1])


def test_without_autoreset_ended_worlds_wait_for_the_mask(make):
    env = make(config=EnvConfig(max_ticks=100), autoreset=False)
    env.reset(seed=[TRAIN, TRAIN + 1, TRAIN + 2])
    env.step(GAS)
    place(env.engine, 0.0, -PLAYFIELD - 1, 0.3, world=2)
    observation, _, terminated, _, info = env.step(GAS)
    assert terminated.tolist() == [False, False, True]
    assert info["active"].tolist() == [True, True, False]
    assert info["_final_obs"].tolist() == terminated.tolist()
    assert np.array_equal(info["final_obs"][2], observation[2])
    gone = observation[2].copy()
    for _ in range(3):
        observation, reward, terminated, truncated, info = env.step(GAS)
        assert reward[2] == 0 and not terminated.any() and not truncated.any()
        assert np.array_equal(observation[2], gone)
    before = {name: info[name].copy() for name in TELEMETRY}
    frames = observation[:2].copy()
    observation, info = env.reset(options={"reset_mask": np.array([False, False, True])})
    assert info["active"].all() and info["progress"][2] == 0
    assert np.array_equal(observation[:2], frames), "others are left as they are"
    for name in set(TELEMETRY):
        assert np.array_equal(info[name][:2], before[name][:2])
    assert not np.array_equal(observation[2], gone)
    observation, reward, *_ = env.step(GAS)
    assert (reward != 0).all()


def test_a_masked_reset_draws_the_other_worlds_into_a_new_buffer(make):
    """Whoever hands over memory after a step finds all observations in it."""
    env = make(config=EnvConfig(max_ticks=100), autoreset=False)
    env.reset()
    shown = env.step(GAS)[0].copy()
    buffer = np.zeros_like(shown)
    env.set_buffer(buffer)
    observation, _ = env.reset(options={"reset_mask": np.array([False, True, False])})
    assert np.shares_memory(observation, buffer)
    assert np.array_equal(observation[[0, 2]], shown[[0, 2]])


def test_a_reset_tells_no_old_rewards(make):
    env = make()
    env.reset()
    env.step(GAS)
    _, info = env.reset()
    assert not any(term.any() for term in info["reward_terms"].values())
    assert not info["progress_delta"].any()


def track_seeds(env, episodes):
    """Track seeds that an environment drives, by ending its episodes."""
    drawn = [env.reset()[1]["track_seed"].copy()]
    while len(drawn) < episodes:
        info = env.step(np.zeros((env.num_envs, 3)))[4]
        if "episode_statistics" in info:
            drawn.append(info["track_seed"].copy())
    return np.stack(drawn)


def test_seeds_are_reproducible_and_belong_to_their_split(make):
    config = EnvConfig(max_ticks=1, track_pool=0)
    drawn = track_seeds(make(4, config, seed=5), 6)
    assert np.array_equal(drawn, track_seeds(make(4, config, seed=5), 6))
    assert not np.array_equal(drawn, track_seeds(make(4, config, seed=6), 6))
    assert len(np.unique(drawn)) == drawn.size
    first, last = SPLITS["train"]
    assert drawn.min() >= first and drawn.max() <= last
    # World w draws the same whatever stands beside it.
    assert np.array_equal(track_seeds(make(2, config, seed=5), 6), drawn[:, :2])
    for split in ("test", "fresh"):
        other = track_seeds(make(4, config, seed=5, split=split), 3)
        first, last = SPLITS[split]
        assert other.min() >= first and other.max() <= last


def test_a_pool_bounds_the_number_of_tracks(make):
    config = EnvConfig(max_ticks=1, track_pool=3, track_reuse=4)
    drawn = track_seeds(make(8, config, seed=5), 8)
    early, late = np.unique(drawn[:4]), np.unique(drawn[4:])
    assert len(early) <= 3 and len(late) <= 3
    assert not set(early) & set(late), "the pool is replaced"


def test_an_int_seed_names_tracks_and_later_draws(make):
    env = make(config=EnvConfig(max_ticks=1, track_pool=0))
    runs = []
    for _ in range(2):
        _, info = env.reset(seed=TRAIN + 50)
        seeds = [info["track_seed"].tolist()]
        seeds += [env.step(STILL)[4]["track_seed"].tolist() for _ in range(4)]
        runs.append(seeds)
    assert runs[0] == runs[1]
    assert runs[0][0] == [TRAIN + 50, TRAIN + 51, TRAIN + 52]
    _, info = env.reset(seed=[TRAIN + 9, TRAIN + 7, TRAIN + 5])
    assert info["track_seed"].tolist() == [TRAIN + 9, TRAIN + 7, TRAIN + 5]


def test_explicit_track_seeds_are_driven_in_order(make):
    seeds = [TRAIN + offset for offset in (5, 3, 9, 1, 7)]
    drawn = track_seeds(make(2, EnvConfig(max_ticks=1), track_seeds=seeds), 4)
    assert drawn.ravel().tolist() == [*seeds, *seeds[:3]]


def test_both_directions_are_drawn(make):
    env = make(16, EnvConfig(direction="both"))
    env.reset()
    directions = [track.track.direction for track in env.engine.tracks]
    assert 2 < directions.count("cw") < 14
    clockwise = make(2, EnvConfig(direction="cw"))
    clockwise.reset()
    assert {track.track.direction for track in clockwise.engine.tracks} == {"cw"}


def test_a_share_of_the_episodes_starts_anywhere_and_in_motion(make):
    env = make(256, EnvConfig(random_start=0.25, track_pool=2, size=64))
    _, info = env.reset()
    moving = info["speed"] > 0
    assert 40 < moving.sum() < 88  # 64 expected, +- 3.5 standard deviations
    assert info["speed"].max() <= START_SPEED
    half_width = env.engine.tracks[0].track.half_width
    offset = info["lateral_offset"] / half_width
    assert np.abs(offset[moving]).max() > 1 > np.abs(offset[~moving]).max()
    assert np.abs(offset).max() < START_OFFSET + 0.2
    lap = env.engine.cars["first_tile"].ravel() / 300
    assert lap[moving].std() > 0.2 and (lap[~moving] == 0).all()
    assert (info["progress"] == 0).all()


def test_a_car_that_starts_in_motion_rolls_on(make):
    env = make(32, EnvConfig(random_start=1.0, track_pool=2, size=64))
    _, info = env.reset()
    speed, on_road = info["speed"].copy(), info["off_track"] == 0
    for _ in range(5):
        _, _, _, _, info = env.step(np.zeros((32, 3)))
    assert on_road.sum() > 8
    np.testing.assert_allclose(info["speed"][on_road], speed[on_road], rtol=0.02, atol=0.1)
    assert np.abs(info["yaw_rate"][on_road]).max() < 0.2


@pytest.mark.parametrize(
    ("options", "reset"),
    [
        ({"track_seeds": [TRAIN, 99]}, {}),
        ({}, {"seed": 99}),
        ({}, {"seed": [TRAIN, TRAIN + 1, 99]}),
    ],
)
def test_training_refuses_other_splits(make, options, reset):
    with pytest.raises(UserError, match=r"RacingVectorEnv\(preset=race\).*99.*test split.*10000"):
        make(split="train", **options).reset(**reset)


def test_a_split_refuses_seeds_of_all_others_and_sealed_tracks_are_not_drawn(make):
    """Every way of naming a track leads to the one place that decides."""
    state = make(track_seeds=[5, 6, 7])
    state.reset()
    for split, complaint in (
        ("train", "5 belongs to the test split and may not be trained on"),
        ("probe", "5 belongs to the test split and not to probe; the probe split is 100-499"),
    ):
        env = make(split=split)
        for name in (
            lambda split=split: make(split=split, track_seeds=[5]),
            lambda env=env: env.reset(seed=5),
            lambda env=env: env.reset(seed=[5, 6, 7]),
            lambda env=env: env.restore(state.snapshot()),
        ):
            with pytest.raises(UserError, match=complaint):
                name()
    with pytest.raises(UserError, match="sealed: 500-999 are opened once"):
        make(split="sealed")
    with pytest.raises(UserError, match=r"RacingVectorEnv.*-1"):
        make().reset(seed=[-1, 1, 2])


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"num_envs": 0}, "num_envs=0"),
        ({"num_envs": 5, "num_agents": 2}, "num_envs=5.*num_agents=2"),
        ({"num_envs": 2, "preset": "rally"}, "RacingVectorEnv: .*'rally'"),
        ({"num_envs": 2, "num_agents": 17}, "num_agents is 1 to 16, not 17"),
        ({"num_envs": 2, "preset": "carracing", "num_agents": 2}, "num_agents=1.*num_agents=2"),
        ({"num_envs": 2, "split": "training"}, "'training'"),
        ({"num_envs": 2, "track_seeds": []}, "track_seeds is a list"),
    ],
)
def test_options_that_do_not_fit_are_named(kwargs, message):
    with pytest.raises(UserError, match=message):
        RacingVectorEnv(**kwargs)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": 97}, "97"),
        ({"frame_stack": 0}, "frame_stack.*0"),
        ({"action_repeat": 51}, "action_repeat.*51"),
        ({"difficulty": 1.5}, "difficulty.*1.5"),
        ({"direction": "left"}, "direction.*'left'"),
        ({"max_ticks": 0}, "max_ticks.*0"),
        ({"random_start": -0.1}, "random_start.*-0.1"),
        ({"road_friction": 0.0}, "road_friction"),
        ({"width_scale": 2.0}, "width_scale.*2.0"),
        ({"preset": "carracing", "laps": 2}, "laps=1.*preset=race.*laps=2"),
        ({"preset": "carracing", "tracks": "procedural"}, "tracks=procedural"),
    ],
)
def test_values_out_of_range_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        EnvConfig(**options)


@pytest.mark.parametrize(
    ("row", "column", "value", "message"),
    [
        (1, 0, np.nan, "steer of environment 1 is nan"),
        (2, 1, 1.5, r"gas of environment 2 is 1.5.*\[0, 1\]"),
        (0, 2, -0.2, "brake of environment 0 is -0.2"),
        (0, 0, -1.01, r"steer of environment 0 is -1.01.*\[-1, 1\]"),
        (1, 1, np.inf, "gas of environment 1 is inf"),
    ],
)
def test_bad_actions_are_named(make, row, column, value, message):
    env = make()
    env.reset()
    twin = make()
    twin.reset()
    actions = GAS.astype(np.float64)
    actions[row, column] = value
    with pytest.raises(ValueError, match=rf"RacingVectorEnv\(preset=race\): {message}"):
        env.step(actions)
    assert np.array_equal(env.step(GAS)[0], twin.step(GAS)[0]), "nothing had moved"


@pytest.mark.parametrize("shape", [(3,), (3, 2), (2, 3), (1, 3, 3)])
def test_a_wrong_shape_is_named(make, shape):
    env = make()
    env.reset()
    with pytest.raises(ValueError, match=re.escape(f"shape (3, 3), not {shape}")):
        env.step(np.zeros(shape))


def test_rounding_beyond_a_bound_is_forgiven(make):
    env = make()
    env.reset()
    *_, info = env.step(np.tile(np.float32([1.00001, 1.00001, -0.00001]), (3, 1)))
    assert (info["steer"] < 0).all() and np.isfinite(info["speed"]).all()


def test_step_comes_after_reset(make):
    with pytest.raises(UserError, match=r"reset\(\) before step"):
        make().step(STILL)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"options": {"mask": None}}, "'mask'"),
        ({"options": {"reset_mask": np.ones(2, bool)}}, r"\(3,\).*\(2,\)"),
        ({"options": {"reset_mask": np.ones(3)}}, "float64"),
        ({"seed": [TRAIN]}, "3 worlds.*1"),
    ],
)
def test_bad_resets_are_named(make, arguments, message):
    env = make()
    env.reset()
    with pytest.raises(UserError, match=rf"RacingVectorEnv.*{message}"):
        env.reset(**arguments)


def test_a_refused_reset_changes_nothing(make):
    env, twin = make(seed=4, split="train"), make(seed=4, split="train")
    for e in (env, twin):
        e.reset()
        e.step(GAS)
    with pytest.raises(UserError):
        env.reset(seed=[TRAIN, TRAIN, 5])
    assert np.array_equal(env.step(GAS)[0], twin.step(GAS)[0])
    assert np.array_equal(env.reset()[0], twin.reset()[0])


def test_episode_statistics_of_a_finished_race(make):
    config = EnvConfig(max_ticks=500)
    env = make(1, config, reward=RewardConfig(finish=77.0), autoreset=False)
    env.reset()
    for _ in range(30):
        env.step(GAS[:1])
    car = env.engine.cars[0, 0]
    car["arc"] = env.engine.tracks[0].track.length - 0.01
    *_, terminated, truncated, info = env.step(GAS[:1])
    assert terminated[0] and not truncated[0]
    episode = {name: value[0] for name, value in info["episode_statistics"].items()}
    assert episode["finished"] and episode["length"] == 31
    assert episode["lap_time"] == pytest.approx(31 / 50)
    assert episode["progress"] == pytest.approx(1, abs=1e-3)
    assert info["reward_terms"]["finish"][0] == 77
    assert episode["off_track_rate"] == 0
    assert 0 < episode["mean_speed"] < 30
    assert episode["steering_variance"] == 0


def test_closing_twice_is_harmless():
    env = RacingVectorEnv(2, EnvConfig(threads=2))
    env.reset()
    env.close()
    env.close()
    assert env.closed
