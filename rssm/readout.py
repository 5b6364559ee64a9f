"""The last step of training: the heads are fitted once more, with the rest of the model fixed.

While the latent states are learnt, the heads follow them by few updates of large batches. On states
that no longer change, many updates of small batches cost little.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from common.display import progress_bar
from common.schema import config_class
from common.seeding import derive
from replay import WindowSampler
from rssm.data import Reader
from rssm.objective import LossConfig, imagined_rows, weighted_sum
from rssm.world_model import WorldModel

WINDOWS = 16
"""Windows that the model follows at a time."""
MAX_PER_UPDATE = 40
"""Head updates per update of the run at most: a short run is followed by a short readout."""
DECAY = 0.01


@config_class
class ReadoutConfig:
    """How the heads are fitted.

    Attributes:
        updates: optimiser steps, at most `MAX_PER_UPDATE` per update of the run; 0 leaves the
            heads as they are.
        rows: of the training split whose states are used, with futures from some of them as in
            training; at most as many as there are, or as the run has trained on.
        batch: states per step.
        learning_rate: at first; it falls to 0.
    """

    updates: Annotated[int, Field(ge=0)] = 4000
    rows: Annotated[int, Field(ge=1, le=10**7)] = 80_000
    batch: Annotated[int, Field(ge=1, le=10**7)] = 512
    learning_rate: Annotated[float, Field(gt=0, le=1)] = 1e-3


def readout_updates(config: ReadoutConfig, trained_updates: int) -> int:
    """Optimiser steps after a run of `trained_updates` updates."""
    return min(config.updates, MAX_PER_UPDATE * trained_updates)


def fit_heads(
    model: WorldModel,
    reader: Reader,
    length: int,
    loss: LossConfig,
    config: ReadoutConfig,
    seed: int,
    trained_rows: int,
    trained_updates: int,
) -> dict[str, float]:
    """Fit the heads of `model` in place; nothing else of it changes.

    Args:
        reader: of the training split.
        length: rows of a window.
        loss: whose weights of heads and rows of futures are used.
        seed: root seed of windows, noise and batches.
        trained_rows, trained_updates: how much the run has trained on, and in how many updates.

    Returns:
        Weighted loss of the heads over all states, `before` and `after`.
    """
    rows = min(config.rows, reader.data.rows, trained_rows)
    states, targets = _states(model, reader, length, loss, rows, seed)
    heads = model.heads
    weights = {name: loss.of_head(name) for name in targets}
    optimiser = torch.optim.AdamW(heads.parameters(), config.learning_rate, weight_decay=DECAY)
    generator = torch.Generator().manual_seed(derive(seed, "readout"))
    before = _mean_loss(model, states, targets, weights)
    updates = readout_updates(config, trained_updates)
    with progress_bar("fitting the heads") as progress:
        for update in range(updates):
            for group in optimiser.param_groups:
                group["lr"] = config.learning_rate * (1 - update / updates)
            chosen = torch.randint(len(states), (config.batch,), generator=generator)
            chosen = chosen.to(states.device)
            some = {name: target[chosen] for name, target in targets.items()}
            losses = heads.losses(states[chosen], some)
            optimiser.zero_grad()
            weighted_sum(losses, weights).backward()
            optimiser.step()
            progress(update + 1, updates)
    optimiser.zero_grad()
    return {"before": before, "after": _mean_loss(model, states, targets, weights)}


@torch.no_grad()
def _states(
    model: WorldModel,
    reader: Reader,
    length: int,
    loss: LossConfig,
    rows: int,
    seed: int,
) -> tuple[Tensor, dict[str, Tensor]]:
    """States (n, features), some observed and some imagined from those, and targets (n,)."""
    count = max(1, rows // length)
    sampler = WindowSampler(
        reader.data.episodes, length, count, derive(seed, "readout windows") % 2**31
    )
    starts = np.sort(sampler.indices(0))  # in the order of the files: read once
    features: list[Tensor] = []
    targets: dict[str, list[Tensor]] = {}
    with progress_bar("following the rows that the heads are fitted on") as progress:
        for first in range(0, count, WINDOWS):
            chosen = starts[first : first + WINDOWS]
            batch = reader.batch(chosen, length).to(model.device)
            generator = torch.Generator().manual_seed(derive(seed, "readout noise", first))
            noise = model.core.latent.noise((len(chosen), length), generator).to(model.device)
            states = model.observe(
                batch.observation, batch.action, batch.is_first, noise=noise, before=batch.before
            ).state
            future = imagined_rows(
                model, states, batch, noise, loss.overshoot_rows, pass_number=first // WINDOWS
            )
            features += [states.features.flatten(0, 1), future.features]
            for name, values in batch.targets.items():
                parts = [values.flatten(), values[future.window, future.row]]
                targets.setdefault(name, []).extend(parts)
            progress(min(first + WINDOWS, count), count)
    return torch.cat(features), {name: torch.cat(parts) for name, parts in targets.items()}


@torch.no_grad()
def _mean_loss(
    model: WorldModel, states: Tensor, targets: dict[str, Tensor], weights: dict[str, float]
) -> float:
    return float(weighted_sum(model.heads.losses(states, targets), weights))
