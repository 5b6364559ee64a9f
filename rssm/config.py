"""What a world model is made of and how it trains, as validated dataclasses."""

from __future__ import annotations

from dataclasses import field
from typing import Annotated, Literal

from pydantic import Field

from common import telemetry
from common.schema import config_class

REWARD = "reward"
CONTINUE = "continue"
OFF = "off"
"""Names of the heads that do not regress telemetry; OFF is all four wheels off the road."""
REGRESSED = tuple(name for name, field in telemetry.TELEMETRY.items() if field.learnable)
"""Telemetry that heads may regress."""
MOTION = tuple(telemetry.MOTION)
"""How the car came to a row, in its axes before the step."""

Units = Annotated[int, Field(ge=1, le=16384)]
WindowSize = Annotated[int, Field(ge=1, le=4096)]


@config_class
class RSSMConfig:
    """Sizes of the world model's networks.

    Attributes:
        channels: of the encoder's convolutions: 8 x 8 with stride 4, then 4 x 4 with stride 2; the
            decoder mirrors them.
        see_change: the encoder also sees how green, which tells road from grass, changed since the
            frame before: one look then tells the motion, which a single frame does not show.
        deter: units of the deterministic state.
        stoch: dimensions of the Gaussian state, or groups of the discrete one.
        classes: per group of the discrete state; 0 makes it Gaussian.
        unimix: share of a uniform distribution in every discrete one.
        min_std: lower bound of the Gaussian's standard deviation.
        first_std: the Gaussian's standard deviation before training. What is to be kept has to
            stand out against this noise; 1 is usual.
        hidden: units of the layers around the core.
        head_units, head_layers: of each head.
        motion_latent: so many of the stochastic dimensions (groups) are for motion: the telemetry
            heads see only them, the decoder sees all. 0 divides nothing.
    """

    channels: Annotated[tuple[Units, ...], Field(min_length=2, max_length=4)] = (16, 32, 32)
    see_change: bool = True
    deter: Units = 256
    stoch: Units = 32
    classes: Annotated[int, Field(ge=0, le=1024)] = 0
    unimix: Annotated[float, Field(ge=0, lt=1)] = 0.01
    min_std: Annotated[float, Field(gt=0, le=1)] = 0.1
    first_std: float = 0.25
    hidden: Units = 256
    head_units: Units = 128
    head_layers: Annotated[int, Field(ge=1, le=8)] = 1
    motion_latent: Annotated[int, Field(ge=0)] = 0

    def __post_init__(self) -> None:
        if self.classes == 1:
            raise ValueError("classes is 0 (Gaussian) or 2 to 1024, not 1")
        if not self.min_std < self.first_std < 2 + self.min_std:
            raise ValueError(f"first_std is between min_std and min_std + 2, not {self.first_std}")
        if self.motion_latent >= self.stoch:
            raise ValueError(
                f"motion_latent is 0 to {self.stoch - 1}, less than stoch, not {self.motion_latent}"
            )

    @property
    def latent(self) -> int:
        """Length of a stochastic state."""
        return self.stoch * max(self.classes, 1)


@config_class
class HeadConfig:
    """Which heads there are and how they learn.

    Attributes:
        telemetry: names among `REGRESSED` (and `MOTION`); None for every one that the data has.
        motion: also regress how the car moved (`MOTION`), where the data has its pose.
        off_track: the off-track head; None where the data has its label.
        regression: symlog (squared error) or twohot (cross-entropy over bins).
    """

    telemetry: tuple[str, ...] | None = None
    motion: bool = False
    off_track: bool | None = None
    regression: Literal["symlog", "twohot"] = "symlog"

    def __post_init__(self) -> None:
        names, known = self.telemetry or (), (*REGRESSED, *MOTION)
        for name in names:
            if name not in known:
                raise ValueError(f"telemetry has {name!r}; there are {', '.join(known)}")
        if len(set(names)) < len(names):
            raise ValueError("telemetry names a head twice")


@config_class
class DecoderConfig:
    """How latents become frames.

    Attributes:
        kind: name of a decoder in `rssm.model.decoder.DECODERS`.
        motion: the convolutional decoder also reads the car's motion of each step, as the motion
            heads predict it.
    """

    kind: str = "convolutional"
    motion: bool = False


@config_class
class ModelConfig:
    """Everything that a world model is built from. Its checkpoint holds this.

    Attributes:
        network: sizes.
        heads: with `telemetry` and `off_track` chosen, as `rssm.data.choose_heads` does from the
            data.
        decoder: how latents become frames.
        frame_size, frame_channels: frames are (frame_size, frame_size, frame_channels).
        actions: numbers per action.
    """

    network: RSSMConfig = field(default_factory=RSSMConfig)
    heads: HeadConfig = field(default_factory=lambda: HeadConfig(telemetry=(), off_track=False))
    decoder: DecoderConfig = field(default_factory=DecoderConfig)
    frame_size: Units = 96
    frame_channels: Units = 3
    actions: Units = 3

    def __post_init__(self) -> None:
        if self.heads.telemetry is None or self.heads.off_track is None:
            raise ValueError("heads: telemetry and off_track are chosen before a model is built")


@config_class
class OptimiserConfig:
    """AdamW without weight decay, that is Adam, on everything.

    Attributes:
        learning_rate: after the warm-up.
        warmup: updates over which it rises linearly; a tenth of the budget at most.
        final: share of it at the end of the budget, approached linearly.
        eps: Adam's epsilon.
        max_grad_norm: the gradient's norm is clipped to this.
        max_nonfinite: updates in a row that may be skipped for a gradient that is not finite.
    """

    learning_rate: Annotated[float, Field(gt=0, le=1)] = 3e-3
    warmup: Annotated[int, Field(ge=0)] = 100
    final: Annotated[float, Field(ge=0, le=1)] = 0.1
    eps: Annotated[float, Field(gt=0)] = 1e-8
    max_grad_norm: Annotated[float, Field(gt=0)] = 1000.0
    max_nonfinite: Annotated[int, Field(ge=1)] = 5

    def scale(self, update: int, updates: int) -> float:
        """What update number `update` of `updates` multiplies the learning rate by."""
        warmup = min(self.warmup, updates // 10)
        rise = min((update + 1) / warmup, 1.0) if warmup else 1.0
        return rise * (1 - (1 - self.final) * update / updates)


@config_class
class ValidationConfig:
    """Judging while training, on windows of the validation split that never change.

    Attributes:
        every: updates between validations; 0 only never.
        windows: how many.
        context: rows observed before the model predicts alone.
        horizon: rows that it predicts.
    """

    every: Annotated[int, Field(ge=0)] = 500
    windows: WindowSize = 32
    context: WindowSize = 25
    horizon: WindowSize = 15


@config_class
class Observable:
    """What a rung's hypothesis predicts: the sign of a measure's change against the parent.

    Attributes:
        probe: name of a probe.
        measure: one that the probe keeps per clip, such as ssim, yaw_slope or speed@15.
        sign: 1 if the rung's is predicted to be better, -1 if worse.
    """

    probe: str
    measure: str
    sign: Literal[1, -1] = 1


@config_class
class RungConfig:
    """A step of the ladder of experiments; training itself does not look at it.

    Attributes:
        name: of the rung.
        parent: the rung that it is compared with.
        change: what differs from the parent.
        hypothesis: what that should do, in words.
        observable: and as a measure; None for the base.
        updates: budget by scale.
    """

    name: str = ""
    parent: str | None = None
    change: str = ""
    hypothesis: str = ""
    observable: Observable | None = None
    updates: dict[str, int] = field(default_factory=dict)
