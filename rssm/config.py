"""What a world model is made of and how it trains, as validated dataclasses."""

from __future__ import annotations

from dataclasses import dataclass, field

REGRESSED = ("speed", "progress_delta", "steer", "yaw_rate", "corner_angle", "lateral_offset")
"""Telemetry that heads may regress; units as in `replay.schema.TELEMETRY`."""
MOTION = ("move_left", "move_ahead", "turn")
"""How the car came to a row, in its axes before the step: units, units, rad."""


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ValueError(message)


@dataclass(frozen=True)
class NetworkConfig:
    """Sizes of the world model.

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
        decode_motion: the decoder is also given the motion that the heads read from the latent.
        motion_latent: so many of the stochastic dimensions (groups) are for motion: the telemetry
            heads see only them, the decoder sees all. 0 divides nothing.
    """

    channels: tuple[int, ...] = (16, 32, 32)
    see_change: bool = False
    deter: int = 256
    stoch: int = 32
    classes: int = 0
    unimix: float = 0.01
    min_std: float = 0.1
    first_std: float = 0.25
    hidden: int = 256
    head_units: int = 128
    head_layers: int = 1
    decode_motion: bool = False
    motion_latent: int = 0

    def __post_init__(self) -> None:
        _require(2 <= len(self.channels) <= 4, "channels has 2 to 4 numbers")
        _require(min(self.channels) >= 1, f"channels are at least 1, not {self.channels}")
        for name in ("deter", "stoch", "hidden", "head_units"):
            value = getattr(self, name)
            _require(1 <= value <= 16384, f"{name} is 1 to 16384, not {value}")
        _require(
            self.classes == 0 or 2 <= self.classes <= 1024,
            f"classes is 0 (Gaussian) or 2 to 1024, not {self.classes}",
        )
        _require(0 <= self.unimix < 1, f"unimix is in [0, 1), not {self.unimix}")
        _require(0 < self.min_std <= 1, f"min_std is in (0, 1], not {self.min_std}")
        _require(
            self.min_std < self.first_std < 2 + self.min_std,
            f"first_std is between min_std and min_std + 2, not {self.first_std}",
        )
        _require(1 <= self.head_layers <= 8, f"head_layers is 1 to 8, not {self.head_layers}")
        _require(
            0 <= self.motion_latent < self.stoch,
            f"motion_latent is 0 to {self.stoch - 1}, less than stoch, not {self.motion_latent}",
        )

    @property
    def latent(self) -> int:
        """Length of a stochastic state."""
        return self.stoch * max(self.classes, 1)


@dataclass(frozen=True)
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

    learning_rate: float = 1e-3
    warmup: int = 200
    final: float = 0.1
    eps: float = 1e-8
    max_grad_norm: float = 100.0
    max_nonfinite: int = 5

    def __post_init__(self) -> None:
        _require(
            0 < self.learning_rate <= 1, f"learning_rate is in (0, 1], not {self.learning_rate}"
        )
        _require(self.warmup >= 0, f"warmup is at least 0, not {self.warmup}")
        _require(0 <= self.final <= 1, f"final is 0 to 1, not {self.final}")
        _require(self.eps > 0, f"eps is above 0, not {self.eps}")
        _require(self.max_grad_norm > 0, f"max_grad_norm is above 0, not {self.max_grad_norm}")
        _require(self.max_nonfinite >= 1, f"max_nonfinite is at least 1, not {self.max_nonfinite}")

    def scale(self, update: int, updates: int) -> float:
        """What update number `update` of `updates` multiplies the learning rate by."""
        warmup = min(self.warmup, updates // 10)
        rise = min((update + 1) / warmup, 1.0) if warmup else 1.0
        return rise * (1 - (1 - self.final) * update / updates)


@dataclass(frozen=True)
class ValidationConfig:
    """Judging while training, on windows of the validation split that never change.

    Attributes:
        every: updates between validations; 0 only never.
        windows: how many.
        context: rows observed before the model predicts alone.
        horizon: rows that it predicts.
    """

    every: int = 500
    windows: int = 32
    context: int = 25
    horizon: int = 15

    def __post_init__(self) -> None:
        if self.every < 0:
            raise ValueError(f"every is at least 0, not {self.every}")
        for name in ("windows", "context", "horizon"):
            value = getattr(self, name)
            if not 1 <= value <= 4096:
                raise ValueError(f"{name} is 1 to 4096, not {value}")


@dataclass(frozen=True)
class Observable:
    """What a rung's hypothesis predicts: the sign of a measure's change against the parent.

    Attributes:
        probe: name of a probe.
        measure: one that the probe keeps per clip, such as ssim, yaw_slope or speed@15.
        sign: 1 if the rung's is predicted to be better, -1 if worse.
    """

    probe: str
    measure: str
    sign: int = 1

    def __post_init__(self) -> None:
        _require(self.sign in (1, -1), f"sign is 1 or -1, not {self.sign}")


@dataclass(frozen=True)
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
