"""The world model as one module: encode, follow, imagine, decode and predict."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from rssm.config import ModelConfig
from rssm.imagination import Imagined, LatentPolicy, roll_out
from rssm.model.core import Core, Observed, State
from rssm.model.decoder import DecoderInput, build_decoder
from rssm.model.encoder import Encoder
from rssm.model.heads import Heads
from rssm.motion import accumulate

ENCODE_ROWS = 64
"""Frames per pass through the convolutions: their activations fit a CPU's cache."""


class WorldModel(nn.Module):
    """An RSSM with decoder and heads, as `config` describes it.

    Attributes:
        config: what it was built from.
        about: provenance of the checkpoint that it was loaded from, empty for a new model.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.about: dict[str, Any] = {}
        network = config.network
        features = network.deter + network.latent
        self.encoder = Encoder(
            network.channels, config.frame_size, config.frame_channels, network.see_change
        )
        self.core = Core(network, self.encoder.features, config.actions)
        telemetry_features = features
        if network.motion_latent:
            telemetry_features = network.deter + network.motion_latent * max(network.classes, 1)
        self.heads = Heads(
            features, telemetry_features, network.head_units, network.head_layers, config.heads
        )
        self.decoder = build_decoder(config, features)

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.core.gates.weight.device

    def encode(
        self, frames: Tensor, is_first: Tensor | None = None, before: Tensor | None = None
    ) -> Tensor:
        """Embeddings (B, T, embed) of frames (B, T, size, size, channels) uint8.

        Args:
            is_first: (B, T) bool, where nothing led to a frame, so that nothing changed.
            before: (B, size, size, channels) uint8, the frame before the first row; without it
                nothing has changed there.
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
        before: Tensor | None = None,
    ) -> Observed:
        """Follow observed sequences.

        Args:
            frames: (B, T, size, size, channels) uint8.
            actions: (B, T, actions) float, of which row t led to frame t.
            is_first: (B, T) bool.
            state: (B, ...) before the first row; the initial one by default.
            noise: (B, T, ...) as `core.latent.noise` makes it; drawn from torch's global generator
                by default.
            before: (B, size, size, channels) uint8, the frame before the first row, for an encoder
                that sees change and goes on from `state`.
        """
        if noise is None:
            noise = self.core.latent.noise(tuple(is_first.shape)).to(actions.device)
        embed = self.encode(frames, is_first, before)
        return self.core.observe(embed, actions, is_first, noise, state)

    def imagine(
        self,
        state: State,
        actions: Tensor | LatentPolicy,
        horizon: int | None = None,
        *,
        pixels: bool = False,
        first_frame: Tensor | None = None,
        **options: Any,
    ) -> Imagined:
        """The future that the model expects from `state`, by its prior alone.

        Args:
            state: (B, ...).
            actions: (B, H, actions), or a policy, which then needs `horizon`.
            horizon: number of steps H; by default as many as there are actions.
            pixels: also decode frames, which costs more than all the rest.
            first_frame: (B, size, size, channels) uint8, the frame that `state` was at, for
                decoders that take it.
            options: noise, sample, carry and deterministic, as `rssm.imagination.roll_out` takes
                them.
        """
        rollout = roll_out(self.core, state, actions, horizon, **options)
        predicted = self.heads.predict(rollout.state.features)
        frames = self.decode(rollout.state, first_frame=first_frame) if pixels else None
        return Imagined(
            start=rollout.start,
            state=rollout.state,
            actions=rollout.actions,
            reward=predicted.reward,
            continue_prob=predicted.continue_prob,
            telemetry=predicted.telemetry,
            off_prob=predicted.off_prob,
            frames=frames,
            carry=rollout.carry,
        )

    def decode(
        self, latents: State, motion: Tensor | None = None, first_frame: Tensor | None = None
    ) -> Tensor:
        """Frames (B, T, size, size, channels) float in [0, 1] of latents (B, T, ...).

        Args:
            motion: (B, T, 3), how the car moved in the step that led to each row, in its axes
                before the step: units to the left, units ahead, rad counter-clockwise. By default
                what the heads predict.
            first_frame: (B, size, size, channels) uint8, the frame before the first row. Decoders
                that draw every frame anew leave it aside.

        Raises:
            ValueError: `motion` for a decoder that takes none, or no `first_frame` for one that
                needs it.
        """
        takes, features = self.decoder.takes, latents.features
        squashed = pose = None
        if motion is not None and not takes & {"motion", "pose"}:
            raise ValueError(
                f"the decoder {self.config.decoder.kind!r} takes no motion: it draws from the "
                "latents alone"
            )
        if "first_frame" in takes and first_frame is None:
            raise ValueError(f"the decoder {self.config.decoder.kind!r} needs first_frame")
        if "motion" in takes and motion is not None:
            squashed = self.heads.squash_motion(motion).flatten(0, 1)
        if "pose" in takes:
            motion = self.heads.motion(features) if motion is None else motion
            pose = accumulate(motion).flatten(0, 1)
        if "first_frame" in takes:
            first_frame = first_frame[:, None].expand(-1, features.shape[1], -1, -1, -1)
            first_frame = first_frame.flatten(0, 1)
        inputs = self.decoder_input(features.flatten(0, 1), squashed, pose, first_frame)
        return self.decoder.frames(inputs).unflatten(0, features.shape[:2])

    def decoder_input(
        self,
        latents: Tensor,
        motion: Tensor | None = None,
        pose: Tensor | None = None,
        first_frame: Tensor | None = None,
    ) -> DecoderInput:
        """What the decoder takes, for N latents.

        Args:
            latents: (N, deter + latent).
            motion: (N, 3) squashed deviations; by default what the heads predict.
            pose, first_frame: as `DecoderInput` has them.
        """
        takes = self.decoder.takes
        if "motion" in takes and motion is None:
            motion = self.heads.squashed_motion(latents)
        return DecoderInput(
            latents,
            motion if "motion" in takes else None,
            pose if "pose" in takes else None,
            first_frame if "first_frame" in takes else None,
        )
