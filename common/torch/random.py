"""The global random generators of torch, numpy and Python, as tensors and plain data."""

import random
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from common.torch.checkpoint import to_arrays, to_tensors


def random_state() -> dict[str, Any]:
    """The state of the three generators."""
    return {
        "torch": torch.get_rng_state(),
        "numpy": to_tensors(np.random.get_state(legacy=False)),
        "python": random.getstate(),
    }


def load_random_state(state: Mapping[str, Any]) -> None:
    """Restore the state that `random_state` returned."""
    torch.set_rng_state(state["torch"])
    np.random.set_state(to_arrays(state["numpy"]))
    random.setstate(state["python"])
