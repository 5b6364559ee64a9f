"""The telemetry, observation and action of a racing car: every field is declared here, once.

The simulator fills these fields, `replay` records them, and world models learn to predict them. A
new field of telemetry is one entry here and one line in `envs/racing/sim/telemetry.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

VERSION = 1
"""Version of this declaration, written into every shard. Raise it when the unit or the meaning of a
field changes. A new field needs no new version, because shards list the names of their fields."""


@dataclass(frozen=True)
class Field:
    """One field.

    Attributes:
        unit: unit of the values.
        meaning: one line for people.
        low, high: bounds of the values; None for no bound.
        learnable: whether a world model can learn to predict it from frames. It must not depend on
            absolute positions or on events long ago.
        dtype: numpy's name of the type.
        shape: shape of one value.
    """

    unit: str
    meaning: str
    low: float | None = None
    high: float | None = None
    learnable: bool = False
    dtype: str = "float32"
    shape: tuple[int, ...] = ()


TELEMETRY: dict[str, Field] = {
    "speed": Field(
        "units/s", "speed of the centre of mass; a unit is CarRacing's", 0.0, 100.0, learnable=True
    ),
    "progress": Field(
        "laps", "arc length driven along the road's middle since the start; cutting gains nothing"
    ),
    "progress_delta": Field(
        "units",
        "arc length gained in this step, in units and not in laps; negative when driving backward",
        learnable=True,
    ),
    "steer": Field(
        "rad", "angle of the front wheels, not the command; positive to the left", learnable=True
    ),
    "yaw_rate": Field("rad/s", "how fast the car turns, positive to the left", learnable=True),
    "corner_angle": Field(
        "rad", "how far the road turns over the next 21 units, positive to the left", learnable=True
    ),
    "off_track": Field(
        "share of wheels",
        "share of the wheels off the road; only 1, all four, counts as off the track in scores",
        0.0,
        1.0,
    ),
    "lateral_offset": Field(
        "units", "distance from the road's middle, positive to the left", learnable=True
    ),
    "x": Field("units", "position of the hull's origin"),
    "y": Field("units", "position of the hull's origin"),
    "heading": Field("rad", "direction of the car: it faces (-sin, cos) of it"),
}
"""Name -> field, in the order of the columns of a telemetry table."""

MOTION: dict[str, Field] = {
    "move_left": Field("units", "how far the car moved to its left in this step"),
    "move_ahead": Field("units", "how far the car moved ahead in this step"),
    "turn": Field("rad", "how far the car turned in this step, positive to the left"),
}
"""The car's movement in one step, in its axes before the step; computed from x, y and heading."""

ACTION: dict[str, Field] = {
    "steer": Field("share of full lock", "steering command, positive to the right", -1.0, 1.0),
    "gas": Field("share", "accelerator pedal", 0.0, 1.0),
    "brake": Field("share", "brake pedal", 0.0, 1.0),
}
"""Name -> field, in the order of the numbers of an action."""

OBSERVATION = Field(
    "", "CarRacing's view of the car: red, green, blue", 0, 255, dtype="uint8", shape=(96, 96, 3)
)
"""A recorded frame. A policy may observe smaller, grey or several frames."""
