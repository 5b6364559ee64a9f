"""What a racing car measures, sees and does: every field declared once.

The simulator fills these fields, `replay` records them, world models learn to predict them. A new
field of telemetry is one entry here and one line in `envs/racing/sim/telemetry.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

VERSION = 1
"""Of this declaration, written into every shard. Raise it when the unit or the meaning of a field
changes; a field that is added needs no new version, because shards list the names they have."""


@dataclass(frozen=True)
class Field:
    """One field.

    Attributes:
        unit: of its values.
        meaning: one line for people.
        low, high: bounds of its values, None where there is none.
        learnable: a world model can learn to read it from frames (it depends on no position in the
            world's own axes and on nothing long ago).
        dtype: numpy's name of the type.
        shape: of one value.
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
"""By name, in the order of the columns of a telemetry table."""

MOTION: dict[str, Field] = {
    "move_left": Field("units", "how far the car moved to its left in this step"),
    "move_ahead": Field("units", "how far the car moved ahead in this step"),
    "turn": Field("rad", "how far the car turned in this step, positive to the left"),
}
"""How a car came to where it is, in its axes before the step; computed from x, y and heading."""

ACTION: dict[str, Field] = {
    "steer": Field("share of full lock", "steering command, positive to the right", -1.0, 1.0),
    "gas": Field("share", "accelerator pedal", 0.0, 1.0),
    "brake": Field("share", "brake pedal", 0.0, 1.0),
}
"""By name, in the order of an action's numbers."""

OBSERVATION = Field(
    "", "CarRacing's view of the car: red, green, blue", 0, 255, dtype="uint8", shape=(96, 96, 3)
)
"""A frame as it is recorded; what a policy sees may be smaller, grey or several at a time."""
