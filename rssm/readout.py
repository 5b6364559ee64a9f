"""The heads fitted once more, when everything else is done.

While the latent state is learnt, the heads follow what moves, by few updates of large batches. On
states that stay as they are, thousands of small steps are cheap.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from common.schema import config_class
from common.seeding import derive
from replay import WindowSampler
from rssm.data import Reader
from rssm.model.world_model import WorldModel
from rssm.objective import LossConfig, weighted_sum

WINDOWS = 16
"""Windows that the model follows at a time."""
DECAY = 0.01


@config_class
class ReadoutConfig:
    """How the heads are fitted.

    Attributes:
        updates: optimiser steps; 0 leaves the heads as they are.
        rows: of the training split whose states are looked at, with futures from some of them as
            in training; at most as many as there are, or as the run has trained on.
        batch: states per step.
        learning_rate: at first; it falls to 0.
    """

    updates: Annotated[int, Field(ge=0)] = 4000
    rows: Annotated[int, Field(ge=1, le=10**7)] = 80_000
    batch: Annotated[int, Field(ge=1, le=10**7)] = 512
    learning_rate: Annotated[float, Field(gt=0, le=1)] = 1e-3


def fit_heads(
    model: WorldModel,
    reader: Reader,
    length: int,
    loss: LossConfig,
    config: ReadoutConfig,
    seed: int,
    trained: int,
) -> dict[str, float]:
    """Fit the heads of `model` in place; nothing else of it changes.

    Args:
        reader: of the training split.
        length: rows of a window.
        loss: whose weights of heads and rows of futures are taken.
        seed: root seed of windows, noise and batches.
        trained: rows that the run has trained on.

    Returns:
        Weighted loss of the heads over all states, `before` and `after`.
    """
    device = next(model.parameters()).device
    rows = min(config.rows, reader.data.rows, trained)
    states, targets = _states(model, reader, length, loss, rows, seed)
    heads = model.heads
    weights = {name: loss.of_head(name) for name in targets}
    optimiser = torch.optim.AdamW(heads.parameters(), config.learning_rate, weight_decay=DECAY)
    generator = torch.Generator().manual_seed(derive(seed, "readout"))
    before = _mean_loss(model, states, targets, weights)
    for update in range(config.updates):
        for group in optimiser.param_groups:
            group["lr"] = config.learning_rate * (1 - update / config.updates)
        rows = torch.randint(len(states), (config.batch,), generator=generator).to(device)
        losses = heads.losses(states[rows], {name: all_[rows] for name, all_ in targets.items()})
        optimiser.zero_grad()
        weighted_sum(losses, weights).backward()
        optimiser.step()
    optimiser.zero_grad()
    return {"before": before, "after": _mean_loss(model, states, targets, weights)}


@torch.no_grad()
def _states(
    model: WorldModel, reader: Reader, length: int, loss: LossConfig, rows: int, seed: int
) -> tuple[Tensor, dict[str, Tensor]]:
    """States (n, features) that saw the frames and futures that did not, and targets (n,)."""
    device = next(model.parameters()).device
    count = max(1, rows // length)
    sampler = WindowSampler(
        reader.data.episodes, length, count, derive(seed, "readout windows") % 2**31
    )
    starts = np.sort(sampler.indices(0))  # in the order of the files: read once
    features: list[Tensor] = []
    found: dict[str, list[Tensor]] = {}
    for first in range(0, count, WINDOWS):
        chosen = starts[first : first + WINDOWS]
        batch = {name: v.to(device) for name, v in reader.batch(chosen, length).items()}
        generator = torch.Generator().manual_seed(derive(seed, "readout noise", first))
        noise = model.core.latent.noise((len(chosen), length), generator).to(device)
        seen = model.observe(
            batch["observation"], batch["action"], batch["is_first"],
            noise=noise, before=batch["before"],
        )  # fmt: skip
        future, window, row = model.futures(
            seen.state, batch, noise, loss.overshoot_rows, turn=first // WINDOWS
        )
        features += [seen.state.features.flatten(0, 1), future]
        for name, values in batch.items():
            if name not in ("observation", "action", "is_first", "before"):
                found.setdefault(name, []).extend([values.flatten(), values[window, row]])
    return torch.cat(features), {name: torch.cat(parts) for name, parts in found.items()}


@torch.no_grad()
def _mean_loss(
    model: WorldModel, states: Tensor, targets: dict[str, Tensor], weights: dict[str, float]
) -> float:
    return float(weighted_sum(model.heads.losses(states, targets), weights))
