"""The world model: an RSSM that learns from replay what driving looks like and what comes of it.

`load_world_model` reads a checkpoint; the model can `observe` frames, `decode` latents, and
`imagine` a future without frames. `train_world_model.py` trains one; no simulator is needed.
"""

import dreamracer  # noqa: F401  refuses foreign packages of the same names
from rssm.checkpoint import load_world_model
from rssm.imagination import Imagined
from rssm.model.core import State
from rssm.world_model import WorldModel

__all__ = ["Imagined", "State", "WorldModel", "load_world_model"]
