"""Turns frames of another environment into the observations that a policy was trained on.

The engine itself stacks, shrinks and greys its frames. Other sources of 96x96 RGB frames, such as
Gymnasium's CarRacing-v3, need the same steps, which are here.
"""

from __future__ import annotations

import numpy as np

from common.rl.policy import ObservationSpec
from envs.racing.pixels.render import LUMINANCE

SOURCE_SIZE = 96
SCORE_TOP, SCORE_WIDTH = 84, 12
"""CarRacing-v3 writes the score into rows 87-91 of columns 0-10, from -100 to 1000 points; nothing
else is drawn left of column 12 in the indicator rows, which begin at 84."""


def push(stack: np.ndarray, frame: np.ndarray, fill: bool = False) -> None:
    """Add the newest frame to a stack (frame_stack, ...) in place; `fill` starts an episode."""
    if fill:
        stack[:] = frame
        return
    stack[:-1] = stack[1:]
    stack[-1] = frame


class FrameStack:
    """Stacks single frames as the engine does: oldest first; a reset fills it with the first frame.

    A frame is uint8, (size, size) for a grey `spec` and (size, size, 3) for RGB. Observations have
    `spec.shape` and are copies.
    """

    def __init__(self, spec: ObservationSpec) -> None:
        self.spec = spec
        self._shape = (spec.size, spec.size) if spec.grey else (spec.size, spec.size, 3)
        self._stack = np.zeros((spec.frame_stack, *self._shape), np.uint8)
        self._empty = True

    def reset(self, frame: np.ndarray) -> np.ndarray:
        """The observation for the first frame of an episode."""
        push(self._stack, self._checked(frame), fill=True)
        self._empty = False
        return self._observation()

    def push(self, frame: np.ndarray) -> np.ndarray:
        """The observation for the next frame; call it once per decision, not per tick."""
        if self._empty:
            raise RuntimeError("an episode's first frame goes to reset(), the others to push()")
        push(self._stack, self._checked(frame))
        return self._observation()

    def _checked(self, frame: np.ndarray) -> np.ndarray:
        if np.shape(frame) != self._shape or frame.dtype != np.uint8:
            raise ValueError(f"frames are uint8 {self._shape}, not {_kind(frame)}")
        return frame

    def _observation(self) -> np.ndarray:
        return self._stack.reshape(self.spec.shape).copy()


class FrameAdapter:
    """Turns one car's stream of 96x96 RGB frames into a policy's observations.

    Grey is the luminance that the engine computes, with the same rounding. Size 64 is an area
    average of 96.

    Args:
        spec: the observations that the policy was trained on.
        mask_score: blacken the score that CarRacing-v3 writes into the lower left corner. The
            engine never draws it, because it would show the policy its own return.
    """

    def __init__(self, spec: ObservationSpec, *, mask_score: bool = False) -> None:
        self.spec = spec
        self._mask_score = mask_score
        self._stack = FrameStack(spec)

    def reset(self, frame: np.ndarray) -> np.ndarray:
        """The observation, of `spec.shape`, for an episode's first frame, uint8 (96, 96, 3)."""
        return self._stack.reset(self.convert(frame))

    def push(self, frame: np.ndarray) -> np.ndarray:
        """The observation for the frame of the next decision, `spec.action_repeat` ticks later.

        Raises:
            ValueError: a frame of another shape or type.
        """
        return self._stack.push(self.convert(frame))

    def convert(self, frame: np.ndarray) -> np.ndarray:
        """One frame in the policy's size and colour, without the stack.

        Raises:
            ValueError: a frame of another shape or type.
        """
        if np.shape(frame) != (SOURCE_SIZE, SOURCE_SIZE, 3) or frame.dtype != np.uint8:
            raise ValueError(f"frames are uint8 (96, 96, 3), not {_kind(frame)}")
        if self._mask_score:
            frame = frame.copy()
            frame[SCORE_TOP:, :SCORE_WIDTH] = 0
        if self.spec.grey:
            values = frame @ LUMINANCE
        elif self.spec.size == SOURCE_SIZE:
            return frame
        else:
            values = frame.astype(np.float64)
        if self.spec.size != SOURCE_SIZE:
            import cv2  # here, because most policies see frames of full size

            size = (self.spec.size, self.spec.size)
            values = cv2.resize(values, size, interpolation=cv2.INTER_AREA)
        return np.round(values).astype(np.uint8)


def _kind(frame: object) -> str:
    if isinstance(frame, np.ndarray):
        return f"{frame.dtype} {frame.shape}"
    return type(frame).__name__
