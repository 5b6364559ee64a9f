"""The configuration of a racing environment (the Hydra group `env`)."""

from __future__ import annotations

from dataclasses import fields
from typing import Annotated, Literal

from pydantic import Field

from common.rl.policy import ActionRepeat, FrameStack, ObservationSpec, Size
from common.schema import config_class
from envs.racing.sim.dynamics import GRASS_FRICTION, ROAD_FRICTION

Grip = Annotated[float, Field(gt=0, le=4)]

SHOWN_OTHERWISE = {
    "preset", "max_ticks", "threads", "track_pool", "track_reuse", "difficulty",
    "action_repeat", "frame_stack", "grey", "size",
}  # fmt: skip
"""Fields that change only the observation, how often it is taken, or the choice of tracks. They are
allowed in preset carracing, which remains CarRacing-v3."""


@config_class
class EnvConfig:
    """One racing world.

    Attributes:
        preset: "carracing" is Gymnasium's CarRacing-v3; "race" measures progress by arc length,
            ends after `laps` and has no zoom-in at the start. Physics and camera are the same.
            "gymnasium_carracing" is the real CarRacing-v3 (`ReferenceVectorEnv`), with its own
            reward.
        tracks: "carracing" makes the track that CarRacing-v3 makes from the seed; "procedural"
            makes one of the graded family.
        difficulty: of procedural tracks: 0 is wide and gentle, 1 narrow with hairpins.
        direction: driving direction; "both" draws one for each episode.
        action_repeat, frame_stack, grey, size: see `ObservationSpec`.
        indicators: draw the bottom bars (speed, wheels, steering, gyro).
        max_ticks: ticks until truncation.
        laps: laps until the finish of a race (preset race only).
        random_start: share of the episodes that start in motion anywhere on the lap (see
            `schedule.Start`); the others start on the grid. For training only: a driver that
            always starts on the grid does not learn to recover from a spin.
        num_agents: cars per world.
        road_friction, grass_friction: grip as a share of CarRacing's road.
        width_scale: road width as a share of CarRacing's.
        track_pool: number of different tracks in use at a time; 0 makes a new one for every
            episode.
        track_reuse: number of episodes per world until the pool gets new tracks.
        threads: engine threads, or processes that step the real CarRacing-v3. Results do not
            depend on it.
    """

    preset: Literal["race", "carracing", "gymnasium_carracing"] = "race"
    tracks: Literal["carracing", "procedural"] = "carracing"
    difficulty: Annotated[float, Field(ge=0, le=1)] = 0.5
    direction: Literal["ccw", "cw", "both"] = "ccw"
    action_repeat: ActionRepeat = 1
    frame_stack: FrameStack = 1
    grey: bool = False
    size: Size = 96
    indicators: bool = True
    max_ticks: Annotated[int, Field(ge=1, le=1_000_000)] = 1000
    laps: Annotated[int, Field(ge=1, le=100)] = 1
    random_start: Annotated[float, Field(ge=0, le=1)] = 0.0
    num_agents: Annotated[int, Field(ge=1, le=16)] = 1
    road_friction: Grip = ROAD_FRICTION
    grass_friction: Grip = GRASS_FRICTION
    width_scale: Annotated[float, Field(ge=0.5, le=1.5)] = 1.0
    track_pool: Annotated[int, Field(ge=0, le=4096)] = 64
    track_reuse: Annotated[int, Field(ge=1)] = 8
    threads: Annotated[int, Field(ge=1, le=256)] = 1

    def __post_init__(self) -> None:
        if self.preset == "race":
            return
        free = SHOWN_OTHERWISE
        if self.preset == "carracing":
            free = free | {"indicators", "random_start"}
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name not in free and value != field.default:
                raise ValueError(
                    f"preset {self.preset} is CarRacing-v3, with {field.name}={field.default}; "
                    f"use preset=race for {field.name}={value}"
                )

    @property
    def observation(self) -> ObservationSpec:
        """The part of this configuration that a policy depends on."""
        return ObservationSpec(self.size, self.grey, self.frame_stack, self.action_repeat)
