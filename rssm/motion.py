"""How the car moves between rows, in its own axes: what a head predicts and a probe measures."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


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


def accumulate(motion: Tensor, is_first: Tensor | None = None) -> Tensor:
    """Motion from the first frame to each row, as `compose` has it, for batches on any device.

    Args:
        motion: (B, T, 3), lateral, forward and yaw of the step that led to each row.
        is_first: (B, T) bool, where another episode begins: counting starts anew there.

    Returns:
        (B, T, 3); 0 where `is_first`.
    """
    lateral, forward, yaw = motion.unbind(-1)
    left = ahead = heading = torch.zeros_like(yaw[:, 0])
    poses = []
    for t in range(motion.shape[1]):
        sin, cos = torch.sin(heading), torch.cos(heading)
        left = left + cos * lateral[:, t] + sin * forward[:, t]
        ahead = ahead + cos * forward[:, t] - sin * lateral[:, t]
        heading = heading + yaw[:, t]
        if is_first is not None:
            going = ~is_first[:, t]
            left, ahead, heading = left * going, ahead * going, heading * going
        poses.append(torch.stack((left, ahead, heading), -1))
    return torch.stack(poses, 1)
