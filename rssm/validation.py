"""Judging a world model while it trains: a few numbers on windows that never change.

The verdict on a finished model is the probes' (`python -m probes`); this only tells how training
goes.
"""

from __future__ import annotations

import torch
from torch import Tensor

from common.seeding import derive
from replay import DataSet, WindowSampler
from rssm.config import ValidationConfig
from rssm.data import Reader
from rssm.model.core import State
from rssm.objective import LossConfig, world_model_loss
from rssm.world_model import WorldModel

BATCH = 16


class Validator:
    """Called with a model, returns numbers.

    `loss` and its parts on context and horizon, following the frames; `psnr` of those frames
    reconstructed, `psnr_open` of the horizon's imagined from the context and the recorded actions,
    `psnr_repeat` of repeating the last frame of the context; `corr_<name>`, over windows and
    horizon, of imagined with recorded reward and telemetry (absent where the data is constant).

    Args:
        data: the validation split.
        config: sizes.
        seed: root seed of windows and noise.
        loss: the weights that training uses.
    """

    def __init__(
        self, data: DataSet, config: ValidationConfig, seed: int, loss: LossConfig
    ) -> None:
        self.data, self.config, self.seed = data, config, seed
        self.loss = loss
        length = config.context + config.horizon
        sampler = WindowSampler(data.episodes, length, config.windows, derive(seed, "val") % 2**31)
        self.starts = sampler.indices(0)

    @torch.no_grad()
    def __call__(self, model: WorldModel) -> dict[str, float]:
        heads = model.heads
        reader = Reader(self.data, *heads.targets)
        length, context = self.config.context + self.config.horizon, self.config.context
        generator = torch.Generator().manual_seed(derive(self.seed, "validation noise"))
        sums: dict[str, float] = {}
        imagined: dict[str, list[Tensor]] = {name: [] for name in heads.regressed}
        recorded: dict[str, list[Tensor]] = {name: [] for name in heads.regressed}
        for first in range(0, len(self.starts), BATCH):
            starts = self.starts[first : first + BATCH]
            batch = reader.batch(starts, length).to(model.device)
            noise = model.core.latent.noise((len(starts), length), generator).to(model.device)
            losses = world_model_loss(model, batch, noise, self.loss)
            frames = batch.observation.float() / 255
            states = losses.observed.state
            last = State(*(part[:, context - 1] for part in states))
            future = model.imagine(
                last, batch.action[:, context:], noise=noise[:, context:], pixels=True,
                first_frame=batch.observation[:, context - 1],
            )  # fmt: skip
            decoded = model.decode(states, first_frame=batch.before)
            predicted = future.predictions.by_head()
            repeated = frames[:, context - 1 : context].expand_as(frames[:, context:])
            numbers = {name: float(value) for name, value in losses.parts.items()}
            numbers |= {
                "loss": float(losses.total),
                "psnr": float(psnr(decoded, frames).mean()),
                "psnr_open": float(psnr(future.frames, frames[:, context:]).mean()),
                "psnr_repeat": float(psnr(repeated, frames[:, context:]).mean()),
            }
            for name, value in numbers.items():
                sums[name] = sums.get(name, 0.0) + value * len(starts)
            for name in heads.regressed:
                imagined[name].append(predicted[name].flatten())
                recorded[name].append(batch.targets[name][:, context:].flatten())
        means = {name: total / len(self.starts) for name, total in sums.items()}
        for name in heads.regressed:
            pair = torch.stack([torch.cat(imagined[name]), torch.cat(recorded[name])])
            if (pair.std(1) > 0).all():
                means[f"corr_{name}"] = float(torch.corrcoef(pair)[0, 1])
        return means


def psnr(frames: Tensor, reference: Tensor) -> Tensor:
    """Peak signal-to-noise ratio in dB per frame, (...), of frames (..., H, W, C) in [0, 1]."""
    error = (frames - reference).square().mean((-3, -2, -1))
    return -10 * torch.log10(error.clamp(min=1e-10))
