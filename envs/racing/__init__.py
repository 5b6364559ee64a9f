"""The racing world: one engine of compiled kernels over worlds x agents, with two presets.

`carracing` is Gymnasium's CarRacing-v3 at hundreds of times its speed; `race` drives the same car
and camera with progress by arc length, laps, both directions and procedural tracks. Importing this
package registers `racing/CarRacing-v0` and `racing/Race-v0` with Gymnasium.
"""

import gymnasium

from envs.racing.config import EnvConfig, ObservationSpec
from envs.racing.score.endings import EndingConfig
from envs.racing.score.terms import RewardConfig
from envs.racing.vector_env import RacingVectorEnv

__all__ = ["EndingConfig", "EnvConfig", "ObservationSpec", "RacingVectorEnv", "RewardConfig"]

for _id, _preset in (("racing/CarRacing-v0", "carracing"), ("racing/Race-v0", "race")):
    if _id not in gymnasium.registry:
        gymnasium.register(
            _id,
            entry_point="envs.racing.single_env:RacingEnv",
            vector_entry_point="envs.racing.vector_env:RacingVectorEnv",
            kwargs={"preset": _preset},
        )
