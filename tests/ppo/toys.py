"""Small vector environments whose every number can be told by hand."""

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from lightning.fabric import Fabric

from envs.racing.config import ObservationSpec
from ppo.config import PolicyConfig

SPEC = ObservationSpec(size=64, grey=True, frame_stack=1, action_repeat=2)
NETWORK = PolicyConfig(
    channels=(4, 8), kernels=(8, 4), strides=(8, 4), hidden=(16,), pedals="two"
)  # fmt: skip


def cpu() -> Fabric:
    return Fabric(accelerator="cpu", devices=1)


class ToyEnv(gymnasium.vector.VectorEnv):
    """Each stream counts its steps; an episode ends after `length[stream]` of them.

    A frame's pixels are all 10 * step + 100 * wanted, where `wanted` (0 or 1) changes from step to
    step: the reward is 1 - |steer - (wanted - 0.5)|, so that a policy can learn it. Streams listed
    in `terminate` end by termination, the others by truncation. An episode's last action runs
    `last_ticks` engine ticks, the others the whole action repeat. The frame buffer is reused.
    """

    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}  # noqa: RUF012

    def __init__(self, length=(5, 3), terminate=(), spec=SPEC, last_ticks=SPEC.action_repeat):
        self.length = np.array(length)
        self.num_envs = len(length)
        self.repeat, self.last_ticks = spec.action_repeat, last_ticks
        self.terminate = np.isin(np.arange(self.num_envs), terminate)
        self.single_observation_space = spaces.Box(0, 255, spec.shape, np.uint8)
        self.single_action_space = spaces.Box(
            np.array([-1, 0, 0], np.float32), np.array([1, 1, 1], np.float32)
        )
        self.frames = np.zeros((self.num_envs, *spec.shape), np.uint8)
        self.step_count = np.zeros(self.num_envs, np.int64)
        self.clock = np.zeros(self.num_envs, np.int64)

    def target(self):
        return (self.clock * 7 + np.arange(self.num_envs) * 3) % 5 % 2

    def _draw(self):
        level = 10 * self.step_count + 100 * self.target()
        self.frames[:] = level.reshape(-1, *[1] * (self.frames.ndim - 1))
        return self.frames

    def reset(self, *, seed=None, options=None):
        self.step_count[:] = 0
        return self._draw(), self._info()

    def step(self, actions):
        assert actions.dtype == np.float32
        assert self.single_action_space.contains(actions[0])
        reward = 1 - np.abs(actions[:, 0] - (self.target() - 0.5))
        self.step_count += 1
        self.clock += 1
        done = self.step_count == self.length
        info = self._info()
        info["ticks"] = np.where(done, self.last_ticks, self.repeat).astype(np.int32)
        info["reward_terms"] = {"steer": reward.astype(np.float32)}
        if done.any():
            last = self._draw()
            info["final_obs"] = np.array([None] * self.num_envs, dtype=object)
            for i in np.flatnonzero(done):
                info["final_obs"][i] = last[i].copy()
            info["_final_obs"] = info["_episode_statistics"] = done
            info["episode_statistics"] = {"length": self.step_count.astype(np.float32)}
        self.step_count[done] = 0
        return (
            self._draw(),
            reward.astype(np.float32),
            done & self.terminate,
            done & ~self.terminate,
            info,
        )

    def _info(self):
        return {"active": np.ones(self.num_envs, bool)}

    def snapshot(self):
        return {"step_count": self.step_count.copy(), "clock": self.clock.copy()}

    def restore(self, state):
        self.step_count[:] = state["step_count"]
        self.clock[:] = state["clock"]
        return self._draw()


class ToyRace(ToyEnv):
    """One world of agents that end one by one: ended slots are inactive until all have ended."""

    def __init__(self, length=(5, 3)):
        super().__init__(length, terminate=range(len(length)))
        self.racing = np.ones(self.num_envs, bool)

    def step(self, actions):
        moving = self.racing.copy()
        before = self.step_count.copy()
        _, reward, terminated, truncated, info = super().step(actions)
        # The world goes on for the others: whoever has ended keeps its counter and earns nothing.
        self.step_count = np.where(moving, before + 1, before)
        self.racing = moving & ~(terminated & moving)
        if not self.racing.any():
            self.step_count[:] = 0
            self.racing[:] = True
        info["active"] = self.racing.copy()
        info["ticks"] = np.where(moving, self.repeat, 0).astype(np.int32)
        reward = np.where(moving, reward, 1e6).astype(np.float32)
        return self._draw(), reward, terminated & moving, truncated & moving, info
