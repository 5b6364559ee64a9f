"""The racing world: one engine of compiled kernels over worlds x agents, with two presets.

`carracing` is Gymnasium's CarRacing-v3 at hundreds of times its speed; `race` drives the same car
and camera with progress by arc length, laps, both directions and procedural tracks. Importing this
package registers `racing/CarRacing-v0` and `racing/Race-v0` with Gymnasium.
"""

from envs.racing.config import EnvConfig, ObservationSpec, RewardConfig
from envs.racing.vector_env import RacingVectorEnv

__all__ = ["EnvConfig", "ObservationSpec", "RacingVectorEnv", "RewardConfig"]
