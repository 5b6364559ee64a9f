"""The world model's training objective, as functions of a model and a batch.

The loss has four parts (Hafner et al. 2019, 2021, 2023): the error of decoded frames, the errors of
the heads, the KL between posterior and prior, and the errors of futures that the prior alone
imagines from the recorded actions (`LossConfig.overshoot`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Annotated, NamedTuple

import torch
from pydantic import Field
from torch import Tensor

from common.schema import config_class
from rssm.config import CONTINUE, MOTION, OFF, REGRESSED, REWARD
from rssm.data import Batch
from rssm.imagination import roll_out
from rssm.model.core import Observed, State
from rssm.motion import accumulate
from rssm.world_model import ENCODE_ROWS, WorldModel

Weight = Annotated[float, Field(ge=0, le=1e6)]


@config_class
class LossConfig:
    """Weights of the parts of the loss.

    Attributes:
        image: of the squared error summed over a frame's pixels and channels, in [0, 1] units. At
            64 x 64 the papers use 1 (a Gaussian with variance 1/2); (64 / 96)^2 keeps the picture's
            weight against the KL.
        reward, continuation, telemetry, off_track: of the heads; telemetry is per regressed name.
        dynamics, representation: of the KL that trains the prior and of the one that trains the
            posterior; their ratio is the papers' balance.
        free_nats: KL per row below which there is nothing to gain.
        heads: weights of single heads by name, such as {progress_delta: 2}, instead of those above.
        perceptual: of the squared distance between the encoder's features of decoded and true
            frames, per feature; the encoder does not learn from it.
        image_every: one row in this many is decoded; which ones changes from update to update, so
            that every row is decoded in time. Neighbouring frames look alike and decoding is half
            of the work of an update: more updates with fewer frames learn more per second.
        overshoot: of the losses of frames and heads on futures that the prior imagines alone,
            relative to the weights above; 0 for none. The KL trains one step ahead, which says
            little about the speed fifteen steps ahead. Training the heads without the frames would
            let the predicted telemetry and the decoded frames disagree.
        overshoot_rows: length of these futures.
        kl_anneal: updates over which the weight of both KLs rises from 0 to 1; 0 for none.
    """

    image: Weight = 0.444
    reward: Weight = 300.0
    continuation: Weight = 1.0
    telemetry: Weight = 100.0
    off_track: Weight = 30.0
    dynamics: Weight = 3.0
    representation: Weight = 0.3
    free_nats: Weight = 1.0
    kl_anneal: Annotated[int, Field(ge=0, le=10**6)] = 0
    heads: dict[str, Weight] = field(
        default_factory=lambda: {"speed": 400.0, "progress_delta": 300.0}
    )
    perceptual: Weight = 0.0
    image_every: Annotated[int, Field(ge=1, le=64)] = 6
    overshoot: Weight = 1.0
    overshoot_rows: Annotated[int, Field(ge=1, le=1000)] = 25

    def __post_init__(self) -> None:
        weights = ("image", "reward", "continuation", "telemetry", "off_track", "dynamics",
                   "representation", "perceptual")  # fmt: skip
        if not any(getattr(self, name) for name in weights) and not any(self.heads.values()):
            raise ValueError(f"{', '.join(weights)} are all 0: nothing is learnt")
        known = (REWARD, CONTINUE, OFF, *REGRESSED, *MOTION)
        for name in self.heads:
            if name not in known:
                raise ValueError(f"heads has {name!r}; there are {', '.join(known)}")

    def of_head(self, name: str) -> float:
        """Weight of a head's loss."""
        common = {REWARD: self.reward, CONTINUE: self.continuation, OFF: self.off_track}
        return self.heads.get(name, common.get(name, self.telemetry))

    def kl_scale(self, update: int) -> float:
        """Weight of both KLs in update number `update`, from 0 on."""
        return min((update + 1) / self.kl_anneal, 1.0) if self.kl_anneal else 1.0


class Losses(NamedTuple):
    """The loss of a batch and its parts.

    Attributes:
        total: () to be minimised.
        parts: () each, unweighted means by name.
        observed: the states that the loss was computed on.
    """

    total: Tensor
    parts: dict[str, Tensor]
    observed: Observed


class Rows(NamedTuple):
    """Latents, and the rows of a batch that they are about.

    Attributes:
        features: (N, deter + latent).
        window, row: (N,) places in the batch.
        pose: (N, 3), the motion since the first frame, where the decoder takes it.
        first: (N,) row of that first frame in the window; -1 for the frame before the window.
    """

    features: Tensor
    window: Tensor
    row: Tensor
    pose: Tensor | None
    first: Tensor

    def every(self, first: int, step: int) -> Rows:
        """Each `step`-th of them, from number `first` on."""
        return Rows(*(None if part is None else part[first::step] for part in self))


def world_model_loss(
    model: WorldModel,
    batch: Batch,
    noise: Tensor,
    config: LossConfig,
    kl_scale: float = 1.0,
    pass_number: int = 0,
) -> Losses:
    """The training objective on one batch.

    Args:
        noise: (B, T, ...) as `core.latent.noise` makes it.
        kl_scale: weight of both KLs in this update.
        pass_number: which forward pass of the run this is; it says which rows are decoded if not
            all are.
    """
    observed = model.observe(
        batch.observation, batch.action, batch.is_first, noise=noise, before=batch.before
    )
    features = observed.state.features
    decoded = observed_rows(model, features, batch).every(
        pass_number % config.image_every, config.image_every
    )
    image, distance = image_losses(model, decoded, batch, perceptual=bool(config.perceptual))
    heads = model.heads.losses(features, batch.targets)
    parts = {"image": image} | ({"perceptual": distance} if config.perceptual else {}) | heads
    weights = {name: config.of_head(name) for name in heads}
    weights |= {"image": config.image, "perceptual": config.perceptual}
    dynamics, representation, kl = kl_losses(
        model.core.latent.kl, observed.posterior, observed.prior, config.free_nats
    )
    parts |= {"dynamics": dynamics, "representation": representation}
    if config.overshoot:
        future = imagined_rows(
            model, observed.state, batch, noise, config.overshoot_rows, pass_number
        )
        if len(future.row):  # 0 where every future is another episode's
            targets = {name: batch.targets[name][future.window, future.row] for name in heads}
            ahead = model.heads.losses(future.features, targets)
            first = pass_number % min(config.image_every, len(future.row))
            decoded = future.every(first, config.image_every)
            ahead["image"], _ = image_losses(model, decoded, batch)
            parts |= {f"ahead_{name}": loss for name, loss in ahead.items()}
            weights |= {f"ahead_{name}": config.overshoot * weights[name] for name in ahead}
    weights["dynamics"] = config.dynamics * kl_scale
    weights["representation"] = config.representation * kl_scale
    total = weighted_sum(parts, weights)
    means = {name: loss.detach().mean() for name, loss in parts.items()}
    return Losses(total, means | {"kl": kl.mean()}, observed)


def observed_rows(model: WorldModel, features: Tensor, batch: Batch) -> Rows:
    """All rows of a batch with their observed features (B, T, ...), window by window."""
    windows, length = batch.is_first.shape
    place = torch.arange(windows * length, device=features.device)
    window, row = place // length, place % length
    pose, first = None, torch.full_like(row, -1)
    if model.decoder.takes & {"pose", "first_frame"}:
        starts = torch.where(batch.is_first, row.view(windows, length), -1)
        first = starts.cummax(1).values.flatten()
    if "pose" in model.decoder.takes:
        pose = accumulate(model.heads.motion(features), batch.is_first).flatten(0, 1)
    return Rows(features.flatten(0, 1), window, row, pose, first)


def imagined_rows(
    model: WorldModel, states: State, batch: Batch, noise: Tensor, rows: int, pass_number: int
) -> Rows:
    """The futures that the prior alone imagines from the recorded actions, `rows` long.

    They start from states `rows` apart, at other rows in every pass. Rows from the start of another
    episode on are left out.
    """
    windows, length = batch.is_first.shape
    rows = min(rows, length - 1)
    first = torch.arange(pass_number % (length - rows), length - rows, rows)
    ahead = first[:, None] + 1 + torch.arange(rows)
    start = State(*(part[:, first].flatten(0, 1) for part in states))
    actions, noise = (whole[:, ahead].flatten(0, 1) for whole in (batch.action, noise))
    future = roll_out(model.core, start, actions, noise=noise).state.features
    going = batch.is_first[:, ahead].cumsum(2) == 0
    window = torch.arange(windows, device=going.device)[:, None, None].expand_as(going)
    row = ahead.to(going.device).expand_as(going)
    origin = first.to(going.device)[:, None].expand_as(going)
    pose = None
    if "pose" in model.decoder.takes:
        pose = accumulate(model.heads.motion(future)).view(*going.shape, -1)[going]
    return Rows(
        future.view(*going.shape, -1)[going], window[going], row[going], pose, origin[going]
    )


def image_losses(
    model: WorldModel, rows: Rows, batch: Batch, *, perceptual: bool = False
) -> tuple[Tensor, Tensor]:
    """Errors of decoded frames, one entry per pass through the decoder.

    Frames go through it a cacheful at a time; entries are weighted so that their mean is the mean
    over all frames.

    Args:
        perceptual: also compare the encoder's features, whose weights do not learn from it.

    Returns:
        Squared error summed over pixels and channels in [0, 1] units; and, if asked for, the mean
        squared distance of the encoder's features, else zeros.
    """
    features = _frozen_encoder(model) if perceptual else None
    first_frame = None
    if "first_frame" in model.decoder.takes:
        outside = (rows.first < 0).view(-1, 1, 1, 1)
        within = batch.observation[rows.window, rows.first.clamp(min=0)]
        first_frame = torch.where(outside, batch.before[rows.window], within)
    errors, distances = [], []
    for begin in range(0, len(rows.row), ENCODE_ROWS):
        chosen = slice(begin, begin + ENCODE_ROWS)
        inputs = model.decoder_input(
            rows.features[chosen],
            pose=None if rows.pose is None else rows.pose[chosen],
            first_frame=None if first_frame is None else first_frame[chosen],
        )
        frames = batch.observation[rows.window[chosen], rows.row[chosen]]
        error, distance = model.decoder.loss(inputs, frames, features)
        errors.append(error)
        distances.append(distance)
    scale = len(errors) / len(rows.row)
    return torch.stack(errors) * scale, torch.stack(distances) * scale


def _frozen_encoder(model: WorldModel) -> Callable[[Tensor], Tensor]:
    """Makes the encoder's features of frames (N, size, size, channels) around 0, with weights that
    get no gradient."""
    weights = {name: tensor.detach() for name, tensor in model.encoder.named_parameters()}
    return lambda frames: torch.func.functional_call(
        model.encoder, weights, ((frames + 0.5) * 255,)
    )


def kl_losses(
    kl: Callable[[Tensor, Tensor], Tensor], posterior: Tensor, prior: Tensor, free_nats: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Dynamics loss, representation loss, and the KL itself, each (...).

    dynamics = max(free, KL(sg(posterior) || prior)) trains the prior, representation =
    max(free, KL(posterior || sg(prior))) the posterior.
    """
    dynamics = kl(posterior.detach(), prior)
    representation = kl(posterior, prior.detach())
    return (
        dynamics.clamp(min=free_nats),
        representation.clamp(min=free_nats),
        dynamics.detach(),
    )


def weighted_sum(losses: Mapping[str, Tensor], weights: Mapping[str, float]) -> Tensor:
    """Sum over the parts of weight x mean."""
    parts = [weights[name] * loss.mean() for name, loss in losses.items() if weights[name]]
    return torch.stack(parts).sum()
