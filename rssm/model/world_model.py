"""The world model as one module: encode, follow, decode, read out, and the loss of a batch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from rssm.config import MOTION, ModelConfig
from rssm.imagination import Imagined, Policy, imagine, run_ahead
from rssm.model.core import Core, Observed, State
from rssm.model.decoder import Decoder, from_patches, to_patches
from rssm.model.encoder import Encoder
from rssm.model.heads import Heads
from rssm.objective import LossConfig, kl_losses, weighted_sum

ENCODE_ROWS = 64
"""Frames per pass through the convolutions: their activations fit a CPU's cache."""


class Losses(NamedTuple):
    """The loss of a batch and its parts.

    Attributes:
        total: () to be minimised.
        parts: () each, unweighted means by name.
        observed: the states that it was taken on.
    """

    total: Tensor
    parts: dict[str, Tensor]
    observed: Observed


class WorldModel(nn.Module):
    """An RSSM with decoder and heads.

    Args:
        network: sizes.
        telemetry: names to regress, in the data's units.
        off: whether there is an off-track head.
        regression: how (`HeadConfig`).
        actions: length of an action.
        size, depth: of the frames, (size, size, depth).
        extra: length of what else drives the core.
    """

    def __init__(
        self,
        network: ModelConfig,
        telemetry: tuple[str, ...] = (),
        off: bool = False,
        regression: str = "symlog",
        actions: int = 3,
        size: int = 96,
        depth: int = 3,
        extra: int = 0,
    ) -> None:
        super().__init__()
        self.network, self.size, self.depth = network, size, depth
        features = network.deter + network.latent
        self.encoder = Encoder(network.channels, size, depth, network.see_change)
        self.core = Core(network, self.encoder.features, actions, extra)
        seen = features
        if network.motion_latent:
            seen = network.deter + network.motion_latent * max(network.classes, 1)
        self.heads = Heads(
            features, seen, network.head_units, network.head_layers, telemetry, off, regression
        )
        if network.decode_motion and not set(MOTION) <= set(telemetry):
            raise ValueError("decode_motion needs the motion heads: heads.motion=true")
        given = features + (len(MOTION) if network.decode_motion else 0)
        self.decoder = Decoder(given, network.channels, size, depth)

    def encode(
        self, frames: Tensor, is_first: Tensor | None = None, before: Tensor | None = None
    ) -> Tensor:
        """Embeddings (B, T, embed) of frames (B, T, size, size, depth) uint8.

        Args:
            is_first: (B, T) bool, where nothing led to a frame, so that nothing changed.
            before: (B, size, size, depth) uint8, the frame before the first row; without it nothing
                has changed there.
        """
        parts = [frames.flatten(0, 1).split(ENCODE_ROWS)]
        if self.encoder.see_change:
            earlier = frames[:, 0] if before is None else before
            earlier = torch.cat((earlier.unsqueeze(1), frames[:, :-1]), 1)
            if is_first is not None and is_first.any():
                earlier = torch.where(is_first[..., None, None, None], frames, earlier)
            parts.append(earlier.flatten(0, 1).split(ENCODE_ROWS))
        embedded = [self.encoder(*some) for some in zip(*parts, strict=True)]
        return torch.cat(embedded).unflatten(0, frames.shape[:2])

    def observe(
        self,
        frames: Tensor,
        actions: Tensor,
        is_first: Tensor,
        state: State | None = None,
        noise: Tensor | None = None,
        extra: Tensor | None = None,
        before: Tensor | None = None,
    ) -> Observed:
        """Follow observed sequences.

        Args:
            frames: (B, T, size, size, depth) uint8.
            actions: (B, T, actions) float, of which row t led to frame t.
            is_first: (B, T) bool.
            state: (B, ...) before the first row; the initial one by default.
            noise: (B, T, ...) as `core.latent.noise` makes it; drawn from torch's global generator
                by default.
            extra: (B, T, extra), where the core takes it.
            before: (B, size, size, depth) uint8, the frame before the first row, for an encoder
                that sees change and goes on from `state`.
        """
        if noise is None:
            noise = self.core.latent.noise(tuple(is_first.shape)).to(actions.device)
        embed = self.encode(frames, is_first, before)
        return self.core.observe(embed, actions, is_first, noise, state, extra)

    def imagine(
        self, state: State, actions: Tensor | Policy, horizon: int | None = None, **options: Any
    ) -> Imagined:
        """Run ahead by the prior alone; see `rssm.imagination.imagine`."""
        return imagine(self, state, actions, horizon, **options)

    def decode(
        self, latents: State, motion: Tensor | None = None, first_frame: Tensor | None = None
    ) -> Tensor:
        """Frames (B, T, size, size, depth) float in [0, 1] of latents (B, T, ...).

        A decoder that warps by explicit motion takes `motion` (B, T, 3) and `first_frame`; this one
        draws every frame anew and refuses them.
        """
        if motion is not None or first_frame is not None:
            raise ValueError("this decoder applies no motion; it takes latents only")
        return self.decoder.frames(self._decoded(latents.features))

    def loss(
        self,
        batch: Mapping[str, Tensor],
        noise: Tensor,
        config: LossConfig,
        kl_scale: float = 1.0,
        turn: int = 0,
    ) -> Losses:
        """The training objective on one batch.

        Args:
            batch: observation (B, T, size, size, depth) uint8, action (B, T, actions), is_first
                (B, T) bool, and (B, T) targets of every head by its name; `before`, as `observe`
                takes it, where it is known.
            noise: (B, T, ...) as `core.latent.noise` makes it.
            kl_scale: weight of both KLs in this update.
            turn: number of the pass; it says which rows are decoded if not all are.
        """
        frames = batch["observation"]
        observed = self.observe(
            frames, batch["action"], batch["is_first"], noise=noise, before=batch.get("before")
        )
        features = observed.state.features
        perceptual = bool(config.perceptual)
        decoded = slice(turn % config.image_every, None, config.image_every)
        image, likeness = self.image_losses(
            features.flatten(0, 1)[decoded], frames.flatten(0, 1)[decoded], perceptual=perceptual
        )
        heads = self.heads.losses(features, batch)
        parts = {"image": image} | ({"perceptual": likeness} if perceptual else {}) | heads
        weights = {name: config.of_head(name) for name in heads}
        weights |= {"image": config.image, "perceptual": config.perceptual}
        dynamics, representation, kl = kl_losses(
            self.core.latent.kl, observed.posterior, observed.prior, config.free_nats
        )
        parts |= {"dynamics": dynamics, "representation": representation}
        if config.overshoot:
            future, window, row = self.futures(
                observed.state, batch, noise, config.overshoot_rows, turn
            )
            if len(row):  # not where every future is another episode's
                ahead = self.heads.losses(
                    future, {name: batch[name][window, row] for name in heads}
                )
                first = turn % min(config.image_every, len(row))
                decoded = slice(first, None, config.image_every)
                ahead["image"], _ = self.image_losses(
                    future[decoded], frames[window[decoded], row[decoded]]
                )
                parts |= {f"ahead_{name}": loss for name, loss in ahead.items()}
                weights |= {f"ahead_{name}": config.overshoot * weights[name] for name in ahead}
        weights["dynamics"] = config.dynamics * kl_scale
        weights["representation"] = config.representation * kl_scale
        total = weighted_sum(parts, weights)
        means = {name: loss.detach().mean() for name, loss in parts.items()}
        return Losses(total, means | {"kl": kl.mean()}, observed)

    def futures(
        self, states: State, batch: Mapping[str, Tensor], noise: Tensor, rows: int, turn: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        """What the prior alone makes of the recorded actions, from states `rows` apart.

        They begin elsewhere in every turn. Rows from the start of another episode on are left out.

        Returns:
            Features (n, features), and of each the window and the row that it is about, (n,).
        """
        windows, length = batch["is_first"].shape
        rows = min(rows, length - 1)
        first = torch.arange(turn % (length - rows), length - rows, rows)
        ahead = first[:, None] + 1 + torch.arange(rows)
        start = State(*(part[:, first].flatten(0, 1) for part in states))
        actions, noise = (whole[:, ahead].flatten(0, 1) for whole in (batch["action"], noise))
        future = run_ahead(self, start, actions, noise=noise)[0].features
        going = batch["is_first"][:, ahead].cumsum(2) == 0
        window = torch.arange(windows, device=going.device)[:, None, None].expand_as(going)
        row = ahead.to(going.device).expand_as(going)
        return future.view(*going.shape, -1)[going], window[going], row[going]

    def image_losses(
        self, features: Tensor, frames: Tensor, *, perceptual: bool = False
    ) -> tuple[Tensor, Tensor]:
        """Errors of decoded frames, one entry per pass through the decoder.

        Frames go through it a cacheful at a time; entries are weighted so that their mean is the
        mean over all frames.

        Args:
            features: (N, features).
            frames: (N, size, size, depth) uint8.
            perceptual: also compare the encoder's features, whose weights stay out of it.

        Returns:
            Squared error summed over pixels and channels in [0, 1] units; and, if asked for, the
            mean squared distance of the encoder's features, else zeros.
        """
        parts = zip(features.split(ENCODE_ROWS), frames.split(ENCODE_ROWS), strict=True)
        errors, distances = [], []
        for part, wanted in parts:
            patches = self.decoder(self._decoded(part))
            target = to_patches(wanted).to(part.dtype) / 255 - 0.5
            errors.append((patches - target).square().sum())
            if perceptual:
                seen = self._frozen_features(from_patches(patches, self.depth))
                true = self._frozen_features(from_patches(target, self.depth))
                distances.append((seen - true.detach()).square().mean() * len(part))
        scale = len(errors) / len(features)
        image = torch.stack(errors) * scale
        return image, torch.stack(distances) * scale if perceptual else torch.zeros_like(image)

    def _frozen_features(self, frames: Tensor) -> Tensor:
        """The encoder's features of frames (N, size, size, depth) around 0, by detached weights."""
        weights = {name: tensor.detach() for name, tensor in self.encoder.named_parameters()}
        return torch.func.functional_call(self.encoder, weights, ((frames + 0.5) * 255,))

    def _decoded(self, features: Tensor) -> Tensor:
        """What the decoder is given for latents (..., features)."""
        if not self.network.decode_motion:
            return features
        return torch.cat((features, self.heads.motion(features)), -1)
