"""The contract of everything that drives: trained, scripted, or a person at the keyboard.

A policy drives a batch of n cars. Its memory of them is its *carry*: one or more arrays whose first
axis is the car, nested in tuples, dataclasses and dicts. The caller keeps the carry and passes it
to the next decision. So an episode can be stopped, saved and continued, and one policy can drive
several batches at a time.

    carry = policy.initial(n, seeds)
    is_first = np.ones(n, bool)
    while driving:
        action, carry = policy.act(carry, observation, is_first)
        ...

The action for a car depends on that car alone, not on the other cars of the batch or on n.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, Protocol

import numpy as np
from pydantic import Field

from common.schema import config_class
from common.telemetry import TELEMETRY

Carry = Any
"""Arrays with a leading car axis (numpy or torch), nested in tuples, dataclasses and dicts; None
for a policy without memory."""

Size = Literal[64, 96]
FrameStack = Annotated[int, Field(ge=1, le=16)]
ActionRepeat = Annotated[int, Field(ge=1, le=50)]


@config_class
class ObservationSpec:
    """The frames that a policy observes.

    Attributes:
        size: frame height and width in pixels.
        grey: one luminance channel instead of RGB.
        frame_stack: number of frames, oldest first, one per decision.
        action_repeat: engine ticks per decision.
    """

    size: Size = 96
    grey: bool = False
    frame_stack: FrameStack = 1
    action_repeat: ActionRepeat = 1

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one observation: (stack, H, W) if grey, (H, W, 3) or (stack, H, W, 3) if RGB."""
        if self.grey:
            return self.frame_stack, self.size, self.size
        stack = () if self.frame_stack == 1 else (self.frame_stack,)
        return (*stack, self.size, self.size, 3)


@config_class
class TelemetrySpec:
    """The telemetry that a policy observes instead of pixels, as scripted drivers do.

    Attributes:
        names: names of telemetry values (see `common.telemetry`); empty for a policy that needs
            no observation, such as a person who looks at the screen.
        action_repeat: engine ticks per decision.
    """

    names: tuple[str, ...] = ()
    action_repeat: ActionRepeat = 1

    def __post_init__(self) -> None:
        unknown = [name for name in self.names if name not in TELEMETRY]
        if unknown:
            raise ValueError(f"no telemetry is named {unknown[0]!r}; see common/telemetry.py")

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one observation, float32: one value per name."""
        return (len(self.names),)

    def gather(self, info: Mapping[str, Any], n: int) -> np.ndarray:
        """Observations (n, len(names)) float32 from telemetry arrays (n,) by name."""
        observation = np.zeros((n, len(self.names)), np.float32)
        for column, name in enumerate(self.names):
            observation[:, column] = info[name]
        return observation

    def split(self, observation: np.ndarray) -> dict[str, np.ndarray]:
        """The columns of observations (n, len(names)) by name, (n,) each."""
        return dict(zip(self.names, np.ascontiguousarray(observation.T), strict=True))


Spec = ObservationSpec | TelemetrySpec


class Policy(Protocol):
    """A driver of n cars."""

    spec: Spec
    """The observation that `act` takes, and for how many engine ticks its actions are held."""

    def initial(self, n: int, seeds: Sequence[int] | None = None) -> Carry:
        """The carry of n cars that have not decided anything.

        Args:
            n: number of cars.
            seeds: one whole number per car. It decides all random choices for that car: decision
                number k draws from (seed, k). The evaluator passes track seeds. Without seeds, the
                cars get 0, 1, 2, ...
        """

    def act(
        self,
        carry: Carry,
        observation: np.ndarray,
        is_first: np.ndarray,
        deterministic: bool = True,
    ) -> tuple[np.ndarray, Carry]:
        """Decide for every car.

        Args:
            carry: the result of `initial` or of the last decision; it is not changed.
            observation: (n, *spec.shape), uint8 frames or float32 telemetry.
            is_first: (n,) bool, cars whose episode starts here. The policy forgets their last
                episode. Their random sequences continue, so that episodes differ.
            deterministic: a policy that samples actions takes the most likely ones instead.

        Returns:
            Actions (n, 3), floating point: steer [-1, 1], gas and brake [0, 1]. And the next carry.
        """


def select_observation(spec: Spec, frames: np.ndarray, info: Mapping[str, Any]) -> np.ndarray:
    """The observation for this `spec`: the frames (n, ...), or telemetry from `info`."""
    return spec.gather(info, len(frames)) if isinstance(spec, TelemetrySpec) else frames


def frame_settings(spec: Spec) -> dict[str, Any]:
    """The fields of `envs.racing.EnvConfig` that a policy with this `spec` needs."""
    settings = dataclasses.asdict(spec)
    settings.pop("names", None)  # telemetry needs no setting of the frames
    return settings


def index(carry: Carry, rows: Any) -> Carry:
    """A copy of the carry of some cars; `rows` are their numbers, or a mask."""
    rows = np.asarray(rows)
    rows = np.flatnonzero(rows) if rows.dtype == bool else rows.astype(np.int64)
    return _map(lambda array: array[rows], carry)


def put(carry: Carry, rows: Any, part: Carry) -> Carry:
    """A copy of `carry` in which the cars `rows` have the carry `part`."""
    rows = np.asarray(rows)
    rows = np.flatnonzero(rows) if rows.dtype == bool else rows.astype(np.int64)

    def replaced(array: Any, values: Any) -> Any:
        new = array.copy() if isinstance(array, np.ndarray) else array.clone()
        new[rows] = values
        return new

    return _map(replaced, carry, part)


def state_dict(carry: Carry) -> dict[str, np.ndarray]:
    """The arrays of a carry by dotted name, for `numpy.savez` or a checkpoint."""
    arrays: dict[str, np.ndarray] = {}
    _walk(carry, "", lambda name, array: arrays.update({name: _to_numpy(array)}))
    return arrays


def load_state_dict(like: Carry, state: Mapping[str, np.ndarray]) -> Carry:
    """The carry that `state_dict` saved; `like` is a carry of the same policy and number of cars.

    Raises:
        ValueError: arrays of another policy, or of another number of cars.
    """
    expected = state_dict(like)
    if expected.keys() != state.keys():
        differ = ", ".join(sorted(expected.keys() ^ state.keys()))
        raise ValueError(f"the saved carry is of another policy: {differ}")
    for name, array in expected.items():
        saved = np.asarray(state[name])
        if saved.shape != array.shape or saved.dtype != array.dtype:
            raise ValueError(
                f"{name} of the saved carry is {saved.dtype} {saved.shape}, not "
                f"{array.dtype} {array.shape}"
            )
    names = iter(expected)

    def restored(array: Any) -> Any:
        saved = np.array(state[next(names)])
        return saved if isinstance(array, np.ndarray) else array.new_tensor(saved)

    return _map(restored, like)


def _to_numpy(array: Any) -> np.ndarray:
    return np.array(array if isinstance(array, np.ndarray) else array.detach().cpu().numpy())


def _map(function: Callable[..., Any], carry: Carry, *others: Carry) -> Carry:
    """Apply `function` to every array of `carry` and the matching arrays of `others`."""
    match carry:
        case None:
            return None
        case dict():
            return {
                key: _map(function, part, *(other[key] for other in others))
                for key, part in carry.items()
            }
        case tuple():
            parts = (_map(function, *same) for same in zip(carry, *others, strict=True))
            return type(carry)(*parts) if hasattr(carry, "_fields") else tuple(parts)
    if dataclasses.is_dataclass(carry):
        changes = {
            field.name: _map(function, *(getattr(c, field.name) for c in (carry, *others)))
            for field in dataclasses.fields(carry)
        }
        return dataclasses.replace(carry, **changes)
    return function(carry, *others)


def _walk(carry: Carry, name: str, visit: Callable[[str, Any], None]) -> None:
    """Call `visit` with the dotted name of every array, in the order of `_map`."""
    match carry:
        case None:
            return
        case dict():
            parts = list(carry.items())
        case tuple():
            parts = list(zip(getattr(carry, "_fields", range(len(carry))), carry, strict=True))
        case _ if dataclasses.is_dataclass(carry):
            parts = [(f.name, getattr(carry, f.name)) for f in dataclasses.fields(carry)]
        case _:
            visit(name or "carry", carry)
            return
    for key, part in parts:
        _walk(part, f"{name}.{key}" if name else str(key), visit)
