"""Collection, by an environment whose pixels, rewards and telemetry are functions of its step."""

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from common.errors import UserError
from common.rl.policy import ObservationSpec, TelemetrySpec
from envs.racing import EnvConfig, RacingVectorEnv
from envs.racing.drivers import PerTick
from replay import Attributes, DataSet, ShardWriter
from replay.collect import UNKNOWN_TRACK, RecordReplay, collect
from tests.policies import Constant, Counting

SPACE = spaces.Box(-1, 1, (3,), np.float32)


class Counter(gym.Env):
    """Shows its number, its episode and its step; the reward is a function of the action taken."""

    observation_space = spaces.Box(0, 255, (96, 96, 3), np.uint8)
    action_space = SPACE

    def __init__(self, number: int, lengths: tuple[int, ...], terminates: bool = True) -> None:
        self.number, self.lengths, self.terminates = number, lengths, terminates
        self.episode, self.at = -1, 0

    def _see(self):
        picture = np.empty((96, 96, 3), np.uint8)
        picture[...] = (self.number, self.episode, self.at)
        return picture, {"speed": float(100 * self.episode + self.at)}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.episode, self.at = self.episode + 1, 0
        return self._see()

    def step(self, action):
        self.at += 1
        done = self.at == self.lengths[self.episode % len(self.lengths)]
        reward = 1000.0 * self.episode + 10 * self.at + float(action[0])
        picture, info = self._see()
        return picture, reward, done and self.terminates, done and not self.terminates, info


class ListWriter(list):
    add = list.append


class Reader:
    """Its action says which observation it was decided on."""

    spec = ObservationSpec()

    def initial(self, n, seeds=None):
        return None

    def act(self, carry, observation, is_first, deterministic=True):
        number, episode, at = observation[:, 0, 0].T.astype(float)
        assert np.array_equal(is_first, at == 0)
        return np.stack([at / 100, episode / 10, number], 1), carry


policy = Reader()


def counters(*lengths: tuple[int, ...], **options) -> SyncVectorEnv:
    makers = [
        lambda n=n, steps=steps: Counter(n, steps, **options) for n, steps in enumerate(lengths)
    ]
    # Without copies its batch is overwritten in place by the next step, as ours is.
    return SyncVectorEnv(makers, copy=False, autoreset_mode=AutoresetMode.SAME_STEP)


def check(picture, action, reward, speed, is_first) -> None:
    """Rows (T, ...) of whole episodes: everything agrees with what the picture shows."""
    number, episode, at = picture[:, 0, 0].T.astype(int)
    step = ~is_first
    assert np.array_equal(is_first, at == 0)
    assert np.array_equal(speed, 100 * episode + at)
    # The action in a row was decided on the observation before, in the same episode.
    np.testing.assert_allclose(action[step, 0], (at[step] - 1) / 100, rtol=1e-6)
    np.testing.assert_allclose(action[step, 1], episode[step] / 10, rtol=1e-6)
    assert np.array_equal(action[step, 2], number[step])
    expected = 1000 * episode + 10 * at + (at - 1) / 100
    np.testing.assert_allclose(reward[step], expected[step], rtol=1e-6)
    assert not action[is_first].any() and not reward[is_first].any()


@pytest.mark.parametrize("terminates", [True, False])
def test_every_row_holds_what_led_to_its_observation(terminates):
    env, episodes = counters((3, 7), (5,), (1, 2), terminates=terminates), ListWriter()
    done = collect(
        env, policy, episodes, frames=60, scenario="count", direction=1, telemetry=("speed",)
    )
    assert done.episodes == len(episodes) and done.rows == sum(map(len, episodes)) >= 60
    for e in episodes:
        number, number_of_episode, _ = e.observation[0, 0, 0].astype(int)
        lengths = ((3, 7), (5,), (1, 2))[number]
        steps = lengths[number_of_episode % len(lengths)]
        assert e.observation[:, 0, 0, 2].tolist() == list(range(steps + 1))  # the last one too
        check(e.observation, e.action, e.reward, e.telemetry["speed"], np.arange(len(e)) == 0)
        last = e.terminated if terminates else e.truncated
        assert last[-1] and (e.terminated.sum() + e.truncated.sum()) == 1
        assert (e.scenario, e.direction, e.track_seed) == ("count", 1, UNKNOWN_TRACK)
    started = {
        (int(n), int(episode)) for n, episode, _ in (e.observation[0, 0, 0] for e in episodes)
    }
    for number in range(3):  # nothing that began is missing: short ones are not preferred
        numbers = sorted(episode for n, episode in started if n == number)
        assert numbers == list(range(len(numbers)))


def test_the_oracle_holds_from_collection_to_windows(tmp_path):
    attributes = Attributes({}, {}, {}, 1, "count", "0", telemetry=("speed",))
    with ShardWriter(tmp_path, "counter", "train", attributes, max_rows=20) as writer:
        collect(
            counters((3, 7), (5,)),
            policy,
            writer,
            frames=50,
            scenario="count",
            telemetry=("speed",),
        )
    data = DataSet(tmp_path, "counter", "train")
    assert len(data.shards) > 1
    for start in range(data.rows - 12):
        w = data.window(start, 12)
        check(w["observation"], w["action"], w["reward"], w["telemetry/speed"], w["is_first"])


def test_cut_episodes_fill_the_budget_exactly_and_do_not_all_start_at_the_start(monkeypatch):
    env, episodes = counters((200,), (200,), (200,)), ListWriter()
    monkeypatch.setattr(
        env, "reset", lambda options=None, reset=env.reset: _masked(env, reset, options)
    )
    reported = []
    done = collect(
        env,
        policy,
        episodes,
        frames=95,
        scenario="count",
        telemetry=("speed",),
        length=20,
        warmup=30,
        progress=reported.append,
    )
    assert done.rows == reported[-1] == 95
    assert sorted(map(len, episodes)) == [15, 20, 20, 20, 20]
    starts = {int(e.observation[0, 0, 0, 2]) for e in episodes}
    assert len(starts) > 2 and max(starts) <= 30
    for e in episodes:
        assert not e.terminated.any() and not e.truncated.any()
        steps = np.diff(e.observation[:, 0, 0, 2].astype(int))
        assert (steps == 1).all() and (e.observation[:, 0, 0, 1] == e.observation[0, 0, 0, 1]).all()
        np.testing.assert_allclose(e.action[1:, 0], e.observation[:-1, 0, 0, 2] / 100, rtol=1e-6)


def _masked(env, reset, options):
    """Gymnasium's own reset with a mask returns the infos of the reset environments only."""
    observation, info = reset(options=options)
    pictures = observation[:, 0, 0]
    return observation, info | {"speed": 100.0 * pictures[:, 1] + pictures[:, 2]}


def test_the_last_row_of_an_episode_has_the_telemetry_of_its_end_in_the_racing_world():
    env, episodes = RacingVectorEnv(3, EnvConfig(max_ticks=25), seed=1), ListWriter()
    gas = Constant(steer=0.1, gas=0.6, spec=TelemetrySpec(("speed",)))
    collect(env, gas, episodes, frames=150, scenario="gas")
    assert [len(e) for e in episodes] == [26] * 6
    assert len({e.track_seed for e in episodes}) > 1
    for e in episodes:
        assert e.truncated[-1] and not e.terminated.any()
        delta, progress = e.telemetry["progress_delta"][1:], np.diff(e.telemetry["progress"])
        length = delta[-5:] / progress[-5:]  # of the track: the same at every row, the last too
        np.testing.assert_allclose(length, length[0], rtol=1e-3)
        moved = np.hypot(np.diff(e.telemetry["x"]), np.diff(e.telemetry["y"]))
        speed = e.telemetry["speed"][1:]
        np.testing.assert_allclose(moved[-5:], speed[-5:] / 50, rtol=0.1)
        assert not np.array_equal(e.observation[-1], e.observation[-2])
    env.close()


@pytest.mark.parametrize("counting", [Counting(), PerTick(Counting(size=64, action_repeat=3))])
def test_a_policy_with_a_memory_starts_every_episode_anew(counting):
    """Cars that end, are cut and are warmed up at different times."""
    env, episodes = RacingVectorEnv(3, EnvConfig(max_ticks=40), seed=1), ListWriter()
    collect(env, counting, episodes, frames=200, scenario="count", length=25, warmup=30, seed=2)
    repeat = 1 if isinstance(counting, Counting) else 3
    waits = set()
    for e in episodes:
        count = np.round(100 * e.action[1:, 1]).astype(int)
        ticks = np.arange(len(count))
        started = next(t for t in range(40) if np.array_equal(count, 1 + (t + ticks) // repeat))
        waits.add(started)
    assert len(waits) > 3
    env.close()


def test_cars_that_share_a_world_are_refused():
    env = RacingVectorEnv(2, EnvConfig(num_agents=2), seed=1)
    env.reset(seed=20_000)
    env.engine.cars["active"][0, 1] = 0
    env.reset = lambda: (env.frames, env.step(np.zeros((2, 3)))[-1])
    with pytest.raises(UserError, match="alone in their worlds"):
        collect(env, policy, ListWriter(), frames=5, scenario="x")
    env.close()


def test_an_environment_without_telemetry_is_collected():
    """Gymnasium's vector environments need not give `final_info`, nor ours of CarRacing-v3."""
    env, episodes = counters((3, 7)), ListWriter()
    step = env.step

    def bare(actions):
        *rest, info = step(actions)
        return *rest, {name: info[name] for name in info if name.endswith("final_obs")}

    env.step = bare
    collect(env, Constant(), episodes, frames=12, scenario="x", telemetry=())
    assert [len(e) for e in episodes] == [4, 8]
    assert [int(e.observation[-1, 0, 0, 2]) for e in episodes] == [3, 7]


def test_what_cannot_be_collected_is_refused():
    def run(env, **options):
        settings = {"frames": 10, "scenario": "count", "telemetry": ("speed",)} | options
        return collect(env, policy, ListWriter(), **settings)

    with pytest.raises(UserError, match="no telemetry named steer"):
        run(counters((3,)), telemetry=("speed", "steer"))
    with pytest.raises(UserError, match="SAME_STEP"):
        run(SyncVectorEnv([lambda: Counter(0, (3,))], autoreset_mode=AutoresetMode.NEXT_STEP))
    with pytest.raises(UserError, match="frames"):
        run(counters((3,)), frames=0)
    with pytest.raises(UserError, match=r"takes frames \(64, 64, 3\) .*PerTick"):
        collect(counters((3,)), Constant(size=64), ListWriter(), frames=9, scenario="x")


class Odd(gym.Env):
    """Grey 48 x 64 pictures, two choices."""

    observation_space = spaces.Box(0, 255, (48, 64), np.uint8)
    action_space = spaces.Discrete(2)
    at = 0

    def reset(self, *, seed=None, options=None):
        self.at = 0
        return np.full((48, 64), 0, np.uint8), {}

    def step(self, action):
        self.at += 1
        return np.full((48, 64), self.at, np.uint8), 1.0, self.at == 4, False, {}


def test_a_single_environment_is_recorded_whatever_it_shows():
    episodes = ListWriter()
    env = RecordReplay(Odd(), episodes, scenario="odd")
    env.reset(seed=7)
    for action in (0, 1, 1, 0):
        env.step(action)
    env.reset()  # without a seed, and left after one step
    env.step(1)
    env.close()
    whole, rest = episodes
    assert whole.observation.shape == (5, 96, 96, 3) and whole.telemetry == {}
    assert [int(picture.mean()) for picture in whole.observation] == [0, 1, 2, 3, 4]
    assert whole.action[1:].argmax(1).tolist() == [0, 1, 1, 0]
    assert whole.terminated.tolist() == [False] * 4 + [True]
    assert (whole.track_seed, rest.track_seed) == (7, UNKNOWN_TRACK)
    assert len(rest) == 2 and not rest.terminated.any() and not rest.truncated.any()


def test_a_single_environment_that_cannot_be_recorded_is_refused():
    env = Odd()
    env.action_space = spaces.Discrete(5)
    with pytest.raises(UserError, match="to_action"):
        RecordReplay(env, ListWriter(), scenario="odd")
    env.observation_space = spaces.Box(0, 1, (4,), np.float32)
    with pytest.raises(UserError, match="no uint8 images"):
        RecordReplay(env, ListWriter(), scenario="odd")


def test_telemetry_of_a_single_environment_has_the_same_timing():
    episodes = ListWriter()
    env = RecordReplay(Counter(3, (6,)), episodes, scenario="count", telemetry=("speed",))
    observation, _ = env.reset(seed=1)
    done = False
    while not done:
        is_first = np.array([observation[0, 0, 2] == 0])
        actions, _ = policy.act(None, observation[None], is_first)
        observation, _, done, _, _ = env.step(actions[0])
    (e,) = episodes
    check(e.observation, e.action, e.reward, e.telemetry["speed"], np.arange(7) == 0)


@pytest.mark.parity
def test_the_real_car_racing_is_recorded():
    pytest.importorskip("Box2D")
    episodes = ListWriter()
    env = RecordReplay(gym.make("CarRacing-v3", max_episode_steps=12), episodes, scenario="real")
    first, _ = env.reset(seed=1)
    frames = [first]
    for step in range(12):
        frames.append(env.step(np.array([0.1 * (step % 3), 0.5, 0.0], np.float32))[0])
    env.close()
    (e,) = episodes
    assert np.array_equal(e.observation, np.stack(frames)) and e.track_seed == 1
    assert e.action[4].tolist() == [0.0, 0.5, 0.0] and e.truncated[-1]
