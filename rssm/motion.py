"""How the car moves between rows, in its own axes: what a head predicts and a probe measures."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Motion(NamedTuple):
    """How the car moved between two frames, in its own axes before the move; arrays or numbers.

    Attributes:
        lateral: units to the left.
        forward: units ahead.
        yaw: rad, counter-clockwise.
    """

    lateral: NDArray[np.float64]
    forward: NDArray[np.float64]
    yaw: NDArray[np.float64]


def motion_between(
    x: NDArray, y: NDArray, heading: NDArray, before: NDArray, after: NDArray
) -> Motion:
    """Motion from rows `before` to rows `after` of a pose, (rows,) each.

    heading is that of the car's body, 0 along +y and counter-clockwise positive, as in the
    telemetry.
    """
    x, y, heading = (np.asarray(value, np.float64) for value in (x, y, heading))
    dx, dy = x[after] - x[before], y[after] - y[before]
    sin, cos = np.sin(heading[before]), np.cos(heading[before])
    turned = heading[after] - heading[before]
    return Motion(
        lateral=-(cos * dx + sin * dy),
        forward=-sin * dx + cos * dy,
        yaw=(turned + np.pi) % (2 * np.pi) - np.pi,
    )


def compose(motions: Motion) -> Motion:
    """Motions from the first frame to each later one, from those of successive steps, (n,) each."""
    lateral, forward, yaw = (np.asarray(part, np.float64) for part in motions)
    heading = np.concatenate([[0.0], np.cumsum(yaw)])
    sin, cos = np.sin(heading[:-1]), np.cos(heading[:-1])
    # In the first frame's axes: left and ahead of a car that has turned by `heading`.
    left = np.cumsum(cos * lateral + sin * forward)
    ahead = np.cumsum(cos * forward - sin * lateral)
    return Motion(left, ahead, heading[1:])
