"""PPO: learning to race from pixels, and driving with what was learned.

`load_policy(path)` gives a `Driver`, a policy of `common.rl.policy`; `train_ppo.py` trains one.
"""

import dreamracer  # noqa: F401  refuses foreign packages of the same names
from ppo.evaluate import Driver, load_policy

__all__ = ["Driver", "load_policy"]
