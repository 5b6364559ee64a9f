"""What a racing environment is made of, as validated dataclasses (the Hydra groups env, reward)."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal

SIZES = (64, 96)


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ValueError(message)


@dataclass(frozen=True)
class ObservationSpec:
    """The frames that a policy was trained on; everything needed to feed it from any source.

    Attributes:
        size: frame height and width in pixels.
        grey: one luminance channel instead of RGB.
        frame_stack: number of frames, oldest first, one per decision.
        action_repeat: engine ticks per decision.
    """

    size: int = 96
    grey: bool = False
    frame_stack: int = 1
    action_repeat: int = 1

    def __post_init__(self) -> None:
        _require(self.size in SIZES, f"size is one of {SIZES}, not {self.size}")
        _require(1 <= self.frame_stack <= 16, f"frame_stack is 1 to 16, not {self.frame_stack}")
        _require(
            1 <= self.action_repeat <= 50, f"action_repeat is 1 to 50, not {self.action_repeat}"
        )

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one observation: (stack, H, W) if grey, (H, W, 3) or (stack, H, W, 3) if RGB."""
        if self.grey:
            return self.frame_stack, self.size, self.size
        stack = () if self.frame_stack == 1 else (self.frame_stack,)
        return (*stack, self.size, self.size, 3)


@dataclass
class EnvConfig:
    """One racing world.

    Attributes:
        preset: "carracing" is Gymnasium's CarRacing-v3; "race" measures progress by arc length,
            ends after `laps` and has no zoom-in at the start. Physics and camera are the same.
            "gymnasium_carracing" is the real CarRacing-v3 (`ReferenceVectorEnv`), with its own
            reward.
        tracks: "carracing" makes the track that CarRacing-v3 makes from the seed; "procedural" the
            graded family with `difficulty` 0 (wide, gentle) to 1 (narrow, hairpins).
        direction: driving direction; "both" draws one per episode.
        action_repeat, frame_stack, grey, size: see `ObservationSpec`.
        indicators: draw the bottom bars (speed, wheels, steering, gyro).
        max_ticks: ticks until truncation.
        laps: laps until the finish of a race (preset race only).
        random_start: share of the episodes that start in motion anywhere on the lap, as
            `schedule.Start` says; the others start on the grid. For training only: a driver that
            always starts on the grid never learns to turn a spun car round.
        num_agents: cars per world.
        road_friction, grass_friction: grip as a share of CarRacing's road.
        width_scale: road width as a share of CarRacing's.
        track_pool: distinct tracks in use at a time; 0 makes a fresh one for every episode.
        track_reuse: episodes per world until the pool's tracks are replaced by new ones.
        threads: engine threads, or processes that step the real CarRacing-v3; results never
            depend on it.
    """

    preset: Literal["race", "carracing", "gymnasium_carracing"] = "race"
    tracks: Literal["carracing", "procedural"] = "carracing"
    difficulty: float = 0.5
    direction: Literal["ccw", "cw", "both"] = "ccw"
    action_repeat: int = 1
    frame_stack: int = 1
    grey: bool = False
    size: int = 96
    indicators: bool = True
    max_ticks: int = 1000
    laps: int = 1
    random_start: float = 0.0
    num_agents: int = 1
    road_friction: float = 1.0
    grass_friction: float = 0.6
    width_scale: float = 1.0
    track_pool: int = 64
    track_reuse: int = 8
    threads: int = 1

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            whole = isinstance(value, int) and not isinstance(value, bool)
            if field.type == "bool":
                _require(isinstance(value, bool), f"{field.name} is true or false, not {value!r}")
            elif field.type == "int":
                _require(whole, f"{field.name} is a whole number, not {value!r}")
            elif field.type == "float":
                _require(
                    whole or isinstance(value, float), f"{field.name} is a number, not {value!r}"
                )
        presets = ("race", "carracing", "gymnasium_carracing")
        _require(self.preset in presets, f"unknown preset {self.preset!r}")
        _require(self.tracks in ("carracing", "procedural"), f"unknown tracks {self.tracks!r}")
        _require(
            self.direction in ("ccw", "cw", "both"),
            f"direction is ccw, cw or both, not {self.direction!r}",
        )
        _require(0 <= self.difficulty <= 1, f"difficulty is 0 to 1, not {self.difficulty}")
        _require(1 <= self.max_ticks <= 1_000_000, f"max_ticks is 1 to 10^6, not {self.max_ticks}")
        _require(1 <= self.laps <= 100, f"laps is 1 to 100, not {self.laps}")
        _require(0 <= self.random_start <= 1, f"random_start is 0 to 1, not {self.random_start}")
        _require(1 <= self.num_agents <= 16, f"num_agents is 1 to 16, not {self.num_agents}")
        _require(
            0 < self.road_friction <= 4, f"road_friction is in (0, 4], not {self.road_friction}"
        )
        _require(
            0 < self.grass_friction <= 4, f"grass_friction is in (0, 4], not {self.grass_friction}"
        )
        _require(
            0.5 <= self.width_scale <= 1.5, f"width_scale is 0.5 to 1.5, not {self.width_scale}"
        )
        _require(0 <= self.track_pool <= 4096, f"track_pool is 0 to 4096, not {self.track_pool}")
        _require(self.track_reuse >= 1, f"track_reuse is at least 1, not {self.track_reuse}")
        _require(1 <= self.threads <= 256, f"threads is 1 to 256, not {self.threads}")
        if self.preset != "race":
            # Every field but those that only change what is seen, how often, or where from.
            free = {"preset", "max_ticks", "threads", "track_pool", "track_reuse", "difficulty"}
            free |= {"action_repeat", "frame_stack", "grey", "size"}
            if self.preset == "carracing":
                free |= {"indicators", "random_start"}
            for field in fields(self):
                value = getattr(self, field.name)
                _require(
                    field.name in free or value == field.default,
                    f"preset {self.preset} is CarRacing-v3, with {field.name}={field.default}; "
                    f"use preset=race for {field.name}={value}",
                )
        self.observation  # noqa: B018  validates size, stack and repeat

    @property
    def observation(self) -> ObservationSpec:
        """The part of this configuration that a policy depends on."""
        return ObservationSpec(self.size, self.grey, self.frame_stack, self.action_repeat)
