"""Several cars in one world as a PettingZoo parallel environment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from pettingzoo import AECEnv, ParallelEnv
from pettingzoo.utils import parallel_to_aec

from common.errors import UserError
from common.seeding import whole_seed
from envs.racing.actions import read_action
from envs.racing.rendering import RENDER_MODES
from envs.racing.sim.dynamics import DT
from envs.racing.vector_env import RacingVectorEnv


def parallel_env(**options: Any) -> RacingParallelEnv:
    """Make a `RacingParallelEnv`; PettingZoo's tools look for a function of this name."""
    return RacingParallelEnv(**options)


def env(**options: Any) -> AECEnv:
    """The same race in PettingZoo's turn-based form (agent environment cycle)."""
    return parallel_to_aec(RacingParallelEnv(**options))


class RacingParallelEnv(ParallelEnv):
    """Agents `car_0`, `car_1`, ... on one track; each sees its own frames.

    An agent leaves `agents` in the step that ends its episode. Spaces, seeds, bounds of actions and
    info are those of `RacingVectorEnv`. The info of an agent's last step has `episode_statistics`.

    Args:
        num_agents: number of cars.
        max_cycles: steps until truncation, if that is before `max_ticks`.
        render_mode: one of `rendering.RENDER_MODES`. `render()` follows the first car whose
            episode has not ended.
        **options: see `RacingVectorEnv`.

    Raises:
        UserError: unknown options or values.
    """

    metadata = {  # noqa: RUF012
        "name": "racing_parallel_v0",
        "render_modes": list(RENDER_MODES),
        "render_fps": round(1 / DT),
        "is_parallelizable": True,
    }

    def __init__(
        self,
        num_agents: int = 2,
        *,
        max_cycles: int | None = None,
        render_mode: str | None = None,
        **options: Any,
    ) -> None:
        if "autoreset" in options:
            raise UserError("racing: autoreset is for the vector form; call reset() here")
        for name, ours in (("num_envs", "num_agents"), ("max_episode_steps", "max_cycles")):
            if name in options:
                raise UserError(f"racing: {name} is called {ours} in the parallel form")
        self._vector = RacingVectorEnv(
            num_agents,
            num_agents=num_agents,
            autoreset=False,
            max_episode_steps=max_cycles,
            render_mode=render_mode,
            **options,
        )
        self.render_mode = render_mode
        self.possible_agents = [f"car_{i}" for i in range(num_agents)]
        self._rows = {agent: row for row, agent in enumerate(self.possible_agents)}
        self.agents: list[str] = []

    def observation_space(self, agent: str):
        """Space of one agent's frames."""
        self._row(agent)
        return self._vector.single_observation_space

    def action_space(self, agent: str):
        """Space of one agent's action."""
        self._row(agent)
        return self._vector.single_action_space

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None):
        """Start a race: (observations, infos) by agent. `options` are ignored."""
        seed = None if seed is None else whole_seed(seed)
        observation, info = self._vector.reset(seed=seed)
        self.agents = list(self.possible_agents)
        return self._by_agent(observation.copy()), self._infos(info)

    def step(self, actions: Mapping[str, np.ndarray]):
        """One decision of every live agent; five dicts by agent, as PettingZoo has them."""
        if not isinstance(actions, Mapping):
            raise UserError(f"racing: step takes a mapping from car to action, not {actions!r}")
        if set(actions) != set(self.agents) and not self._vector.closed:
            odd = sorted(set(actions) ^ set(self.agents), key=str)
            raise UserError(
                f"racing: step takes one action for each of {self.agents}; {odd} missing or unknown"
            )
        batch = np.zeros((len(self.possible_agents), 3))
        for agent, action in actions.items():
            batch[self._row(agent)] = read_action(action, f"racing: {agent}'s action")
        observation, reward, terminated, truncated, info = self._vector.step(batch)
        done = terminated | truncated
        result = (
            self._by_agent(observation.copy()),
            {agent: float(value) for agent, value in self._by_agent(reward).items()},
            {agent: bool(value) for agent, value in self._by_agent(terminated).items()},
            {agent: bool(value) for agent, value in self._by_agent(truncated).items()},
            self._infos(info),
        )
        self.agents = [agent for agent in self.agents if not done[self._rows[agent]]]
        return result

    def render(self) -> np.ndarray | None:
        """The picture of `render_mode`, (H, W, 3) uint8, or None without one."""
        first = self.agents[0] if self.agents else self.possible_agents[0]
        return self._vector.render_row(self._rows[first])

    def state(self) -> np.ndarray:
        """All cars' frames, (num_agents, ...) uint8, a copy."""
        return self._vector.frames.copy()

    def close(self) -> None:
        """Stop background threads; the environment cannot be used any more."""
        self._vector.close()

    def _row(self, agent: str) -> int:
        if agent not in self.possible_agents:
            raise UserError(f"racing: no agent {agent!r}; there are {self.possible_agents}")
        return self._rows[agent]

    def _by_agent(self, rows: np.ndarray) -> dict[str, Any]:
        return {agent: rows[self._rows[agent]] for agent in self.agents}

    def _infos(self, info: dict[str, Any]) -> dict[str, dict[str, Any]]:
        names = [
            name
            for name, value in info.items()
            if isinstance(value, np.ndarray) and not name.startswith(("_", "final_"))
        ]
        infos = {}
        for agent in self.agents:
            row = self._rows[agent]
            infos[agent] = {name: info[name][row : row + 1].tolist()[0] for name in names}
            if info.get("_episode_statistics", np.zeros(row + 1))[row]:
                statistics = info["episode_statistics"]
                infos[agent]["episode_statistics"] = {
                    name: array[row].item() for name, array in statistics.items()
                }
        return infos
