"""Several cars in one world as a PettingZoo parallel environment."""

from __future__ import annotations

from typing import Any

import numpy as np
from pettingzoo import ParallelEnv

from common.errors import UserError
from envs.racing.config import EnvConfig, RewardConfig
from envs.racing.vector_env import RacingVectorEnv


class RacingParallelEnv(ParallelEnv):
    """Agents `car_0`, `car_1`, ... on one track; each sees its own frames.

    An agent leaves `agents` in the step in which it ends. Spaces, seeds and info are those of
    `RacingVectorEnv`.

    Args:
        num_agents: cars.
        config, reward: see `EnvConfig` and `RewardConfig`.
    """

    metadata = {"name": "racing_parallel_v0", "render_modes": []}  # noqa: RUF012
    render_mode = None

    def __init__(
        self,
        num_agents: int = 2,
        config: EnvConfig | None = None,
        reward: RewardConfig | None = None,
    ) -> None:
        self._vector = RacingVectorEnv(
            num_agents, config, reward, num_agents=num_agents, split=None, autoreset=False
        )
        self.possible_agents = [f"car_{i}" for i in range(num_agents)]
        self.agents: list[str] = []

    def observation_space(self, agent: str):
        """Space of one agent's frames."""
        return self._vector.single_observation_space

    def action_space(self, agent: str):
        """Space of one agent's action."""
        return self._vector.single_action_space

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None):
        """Start a race: (observations, infos) by agent. There are no options; they are ignored."""
        observation, info = self._vector.reset(seed=None if seed is None else [seed])
        self.agents = list(self.possible_agents)
        return self._by_agent(observation.copy()), self._infos(info)

    def step(self, actions: dict[str, np.ndarray]):
        """One decision of every live agent; five dicts by agent, as PettingZoo has them."""
        if set(actions) != set(self.agents):
            odd = sorted(set(actions) ^ set(self.agents))
            raise UserError(
                f"racing: step takes one action for each of {self.agents}; {odd} missing or unknown"
            )
        batch = np.zeros((len(self.possible_agents), 3), np.float32)
        for agent in self.agents:
            batch[self.possible_agents.index(agent)] = actions[agent]
        observation, reward, terminated, truncated, info = self._vector.step(batch)
        result = (
            self._by_agent(observation.copy()),
            {agent: float(value) for agent, value in self._by_agent(reward).items()},
            {agent: bool(value) for agent, value in self._by_agent(terminated).items()},
            {agent: bool(value) for agent, value in self._by_agent(truncated).items()},
            self._infos(info),
        )
        over = terminated | truncated
        self.agents = [
            agent for agent in self.agents if not over[self.possible_agents.index(agent)]
        ]
        return result

    def _by_agent(self, rows) -> dict[str, Any]:
        return {agent: rows[self.possible_agents.index(agent)] for agent in self.agents}

    def _infos(self, info: dict[str, Any]) -> dict[str, dict[str, Any]]:
        names = [
            name
            for name, value in info.items()
            if isinstance(value, np.ndarray) and not name.startswith(("_", "final_"))
        ]
        return {
            agent: {name: info[name][self.possible_agents.index(agent)].item() for name in names}
            for agent in self.agents
        }

    def close(self) -> None:
        """Stop background threads."""
        self._vector.close()
