"""The geometry of the picture: which pixels show ground, and how they move when the car moves.

CarRacing's window of 1000 x 800 is shrunk to a square. So one unit covers more pixels along the car
than across it, and a rotation of the car is not a rotation of the picture. Rotations are therefore
computed in units, not in pixels.
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
"""Size in units of the area around the hull's origin where the car itself may be visible."""
INDICATOR_SHARE = 12 / 96
"""Share of the picture's height, at the bottom, that shows no ground."""


@dataclass(frozen=True)
class PictureCamera:
    """Where the ground is in a frame.

    Attributes:
        size: height and width in pixels.
        across, along: pixels per unit, across and along the car.
        column, row: pixel of the hull's origin.
    """

    size: int
    across: float
    along: float
    column: float
    row: float

    @classmethod
    def of(cls, camera: Mapping[str, float], size: int) -> PictureCamera:
        """The camera described by a data set's attributes.

        Raises `UserError` if they are incomplete.
        """
        names = ("pixels_per_unit_across", "pixels_per_unit_along", "car_column", "car_row")
        absent = [name for name in names if name not in camera]
        if absent:
            raise UserError(f"the data set's camera has no {', '.join(absent)}")
        return cls(size, *(float(camera[name]) for name in names))

    @cached_property
    def ground(self) -> NDArray[np.bool_]:
        """(size, size): pixels that show ground, neither the car nor the indicators."""
        rows, columns = np.indices((self.size, self.size))
        above_indicators = rows < self.size - round(INDICATOR_SHARE * self.size)
        ahead = (self.row - rows) / self.along
        side = np.abs(columns - self.column) / self.across
        car = (side < CAR_ACROSS) & (ahead > -CAR_BEHIND) & (ahead < CAR_AHEAD)
        return above_indicators & ~car

    def matrix(self, motion: Motion) -> NDArray[np.float64]:
        """(2, 3): maps a pixel (column, row, 1) after the motion to the pixel that showed the same
        ground before it."""
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
        """The frame that follows `frame` after a motion; car and indicators are not moved.

        Args:
            frame: (size, size, 3), any type that cv2 accepts.
            motion: one motion, made of plain numbers.

        Returns:
            The moved frame, and bool (size, size): the pixels whose ground the old frame shows.
            The other pixels repeat the nearest pixel at the old frame's edge.
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
