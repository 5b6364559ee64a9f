"""The geometry of the picture: which pixels show ground, and how ground moves when the car does.

CarRacing's window is 1000 x 800 and is shrunk to a square, so a unit is more pixels along the car
than across it, and a turn of the car is not a rotation of the picture: points turn in units.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import cv2
import numpy as np
from numpy.typing import NDArray

from common.errors import UserError
from rssm.motion import Motion

CAR_ACROSS, CAR_BEHIND, CAR_AHEAD = 2.3, 3.6, 3.6
"""Units around the hull's origin in which the car itself may be seen."""
INDICATOR_SHARE = 12 / 96
"""Share of the picture's height, at the bottom, that shows no ground."""


@dataclass(frozen=True)
class PictureCamera:
    """Where the ground is in a frame.

    Attributes:
        size: height and width in pixels.
        across, along: pixels per unit.
        column, row: of the hull's origin.
    """

    size: int
    across: float
    along: float
    column: float
    row: float

    @classmethod
    def of(cls, camera: Mapping[str, float], size: int) -> PictureCamera:
        """The camera that a data set's attributes describe; `UserError` if they do not."""
        names = ("pixels_per_unit_across", "pixels_per_unit_along", "car_column", "car_row")
        absent = [name for name in names if name not in camera]
        if absent:
            raise UserError(f"the data set's camera has no {', '.join(absent)}")
        return cls(size, *(float(camera[name]) for name in names))

    @cached_property
    def ground(self) -> NDArray[np.bool_]:
        """(size, size): neither car nor indicators."""
        rows, columns = np.indices((self.size, self.size))
        shown = rows < self.size - round(INDICATOR_SHARE * self.size)
        ahead = (self.row - rows) / self.along
        side = np.abs(columns - self.column) / self.across
        car = (side < CAR_ACROSS) & (ahead > -CAR_BEHIND) & (ahead < CAR_AHEAD)
        return shown & ~car

    def matrix(self, motion: Motion) -> NDArray[np.float64]:
        """(2, 3): pixel (column, row, 1) after the motion to the same ground's pixel before it."""
        sin, cos = np.sin(motion.yaw), np.cos(motion.yaw)
        # A pixel is right = (column - c) / across, ahead = (row0 - row) / along in units; ground at
        # (right, ahead) after the motion lay at R (right, ahead) + (shift) before it.
        to_units = np.array(
            [
                [1 / self.across, 0, -self.column / self.across],
                [0, -1 / self.along, self.row / self.along],
                [0, 0, 1],
            ]
        )
        move = np.array([[cos, -sin, -motion.lateral], [sin, cos, motion.forward], [0, 0, 1]])
        return (np.linalg.inv(to_units) @ move @ to_units)[:2]

    def warp(self, frame: NDArray, motion: Motion) -> tuple[NDArray, NDArray[np.bool_]]:
        """What a frame shows after a motion, with car and indicators of the frame itself.

        Args:
            frame: (size, size, 3), any type that cv2 takes.
            motion: numbers.

        Returns:
            The frame, and which of its pixels show ground that the old one showed too, (size,
            size); the others repeat the nearest of the old frame's edge.
        """
        matrix, ground = self.matrix(motion), self.ground
        flags = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
        bottom = self.size - round(INDICATOR_SHARE * self.size)
        size = (self.size, bottom)
        warped = frame.copy()
        warped[:bottom] = cv2.warpAffine(
            frame[:bottom], matrix, size, flags=flags, borderMode=cv2.BORDER_REPLICATE
        )
        known = np.zeros((self.size, self.size), bool)
        inside = cv2.warpAffine(
            ground[:bottom].astype(np.float32), matrix, size, flags=flags,
            borderMode=cv2.BORDER_CONSTANT,
        )  # fmt: skip
        known[:bottom] = inside > 0.999
        warped[~ground] = frame[~ground]
        return warped, known & ground
