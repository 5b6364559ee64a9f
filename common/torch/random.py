"""The global random generators of torch, numpy and Python, as tensors and plain data."""

import random
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from common.torch.checkpoint import to_arrays, to_tensors


def random_state() -> dict[str, Any]:
    """Where the three generators are."""
    return {
        "torch": torch.get_rng_state(),
        "numpy": to_tensors(np.random.get_state(legacy=False)),
        "python": random.getstate(),
    }


def load_random_state(state: Mapping[str, Any]) -> None:
    """Put the generators back to where `random_state` found them."""
    torch.set_rng_state(state["torch"])
    np.random.set_state(to_arrays(state["numpy"]))
    random.setstate(state["python"])
