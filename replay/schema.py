"""What recorded driving consists of: the arrays of an episode, their units and their timing.

A row holds an observation and what led to it. An episode of L environment steps has L + 1 rows:

    row             0          1                   t                              L
    observation    o_0        o_1       ...       o_t            ...             o_L
    action          0     o_0 -> o_1    ...   o_{t-1} -> o_t     ...       o_{L-1} -> o_L
    reward          0      at o_1       ...      at o_t          ...            at o_L
    is_first      True      False       ...      False           ...            False
    terminated    False     False       ...      False           ...     whether o_L ended it
    telemetry     at o_0    at o_1      ...      at o_t          ...            at o_L

So a model that steps as h_t = f(h_{t-1}, z_{t-1}, action[t]) predicts reward[t] and terminated[t]
from (h_t, z_t): nothing is shifted by any reader.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from common.errors import UserError
from common.keys import unknown_choice
from common.seeding import derive
from common.telemetry import ACTION, OBSERVATION, TELEMETRY
from common.telemetry import VERSION as TELEMETRY_VERSION

SCHEMA_VERSION = 1

OBSERVATION_SHAPE = OBSERVATION.shape
ACTION_SIZE = len(ACTION)

DIRECTIONS = ("ccw", "cw")
"""Driving directions; an episode holds the index."""

MAX_SCENARIO = 64
"""Characters in the name of a scenario."""

EPISODE_DTYPE = np.dtype(
    [
        ("start", np.int64),
        ("length", np.int64),
        ("track_seed", np.int64),
        ("direction", np.int8),
        ("scenario", f"U{MAX_SCENARIO}"),
    ]
)
"""One row per episode: its first row, its number of rows and what it shows."""


def stored_seed(seed: int) -> int:
    """How the 64-bit column `track_seed` of a shard keeps a seed, which may have any size.

    A seed below 2^63 as it is, and -1 (of no known track) too. A larger one as a negative number
    below -1 that is made from its digits: tracks stay distinct, though the number makes none.
    """
    return seed if seed < 2**63 else -2 - derive(0, "track seed", seed) % (2**63 - 2)


@dataclass(frozen=True)
class Column:
    """Shape (after the axis of rows) and type of one flat array."""

    shape: tuple[int, ...]
    dtype: np.dtype


_COLUMNS = {
    "observation": Column(OBSERVATION_SHAPE, np.dtype(OBSERVATION.dtype)),
    "action": Column((ACTION_SIZE,), np.dtype(np.float32)),
    "reward": Column((), np.dtype(np.float32)),
    "terminated": Column((), np.dtype(np.bool_)),
    "truncated": Column((), np.dtype(np.bool_)),
    "is_first": Column((), np.dtype(np.bool_)),
}


def columns(telemetry: Iterable[str] = TELEMETRY) -> dict[str, Column]:
    """Every flat array of a data set with these telemetry names, by the name in its files."""
    values = {
        f"telemetry/{name}": Column(TELEMETRY[name].shape, np.dtype(TELEMETRY[name].dtype))
        for name in telemetry
    }
    return _COLUMNS | values


@dataclass(frozen=True, eq=False)
class Episode:
    """One episode of T = L + 1 rows, checked when it is made. See the module for the timing.

    Attributes:
        observation: (T, 96, 96, 3) uint8.
        action: (T, 3) float32; the first row is 0.
        reward: (T,) float32; the first row is 0.
        terminated, truncated: (T,) bool; only the last row may be True. An episode that was cut
            by the recorder, not by its environment, has neither.
        telemetry: name -> (T,) float32, names among `common.telemetry.TELEMETRY`.
        track_seed: what the track was made from, of any size (shards keep `stored_seed` of it); of
            any other environment, its seed.
        direction: index into `DIRECTIONS`.
        scenario: who drove and what for, such as "ppo" or "sustained_turn".

    Raises:
        UserError: names the array that has another shape or type, holds NaN or infinity, or breaks
            the rules of the first and last row.
    """

    observation: NDArray[np.uint8]
    action: NDArray[np.float32]
    reward: NDArray[np.float32]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    telemetry: Mapping[str, NDArray[np.float32]]
    track_seed: int
    direction: int
    scenario: str

    def __post_init__(self) -> None:
        if not 1 <= len(self.scenario) <= MAX_SCENARIO:
            raise UserError(
                f"a scenario's name has 1 to {MAX_SCENARIO} characters, not {self.scenario!r}"
            )
        if self.direction not in range(len(DIRECTIONS)):
            raise self._error(f"direction is 0 (ccw) or 1 (cw), not {self.direction!r}")
        for name in self.telemetry:
            if name not in TELEMETRY:
                raise self._error(str(unknown_choice("telemetry", name, list(TELEMETRY))))
        if len(self) == 0:
            raise self._error("no rows: even an episode without a step has its first observation")
        for name, column in columns(self.telemetry).items():
            self._check_array(name, self.arrays[name], column)
        for name in ("action", "reward"):
            if np.any(self.arrays[name][0]):
                raise self._error(f"{name} of the first row is not 0: nothing led to it")
        for name in ("terminated", "truncated"):
            if self.arrays[name][:-1].any() or (len(self) == 1 and self.arrays[name][0]):
                raise self._error(f"{name} is True before the last row or without a step")

    def __len__(self) -> int:
        """Number of rows T."""
        return len(self.observation)

    @cached_property
    def arrays(self) -> dict[str, np.ndarray]:
        """Every array by its name in `columns`, with `is_first` (T,) bool."""
        is_first = np.zeros(len(self), np.bool_)
        is_first[:1] = True
        plain = {name: getattr(self, name) for name in _COLUMNS if name != "is_first"}
        values = {f"telemetry/{name}": array for name, array in self.telemetry.items()}
        return plain | {"is_first": is_first} | values

    def _check_array(self, name: str, array: np.ndarray, column: Column) -> None:
        shape = (len(self), *column.shape)
        if not isinstance(array, np.ndarray) or array.dtype != column.dtype:
            kind = array.dtype if isinstance(array, np.ndarray) else type(array).__name__
            raise self._error(f"{name} is an array of {column.dtype}, not {kind}")
        if array.shape != shape:
            raise self._error(f"{name} has shape {shape}, not {array.shape}")
        if column.dtype.kind == "f" and not np.isfinite(array).all():
            row = np.argwhere(~np.isfinite(array))[0, 0]
            raise self._error(f"{name} is not finite in row {row}")

    def _error(self, what: str) -> UserError:
        return UserError(f"episode ({self.scenario}, track seed {self.track_seed}): {what}")


@dataclass(frozen=True)
class Attributes:
    """Where the rows of a shard come from.

    Attributes:
        environment, reward, endings: configurations, as plain data.
        camera: pixels per unit across and along, the car's column and row, zoom.
        action_repeat: engine ticks per row.
        policy: content hash of the checkpoint, or the driver's name.
        code: content hash of the source.
        telemetry: names present, among `common.telemetry.TELEMETRY`; episodes with fewer or more
            are refused.
        telemetry_version: of the declaration that they were recorded by.
    """

    environment: dict[str, Any]
    reward: dict[str, Any]
    camera: dict[str, Any]
    action_repeat: int
    policy: str
    code: str
    telemetry: tuple[str, ...] = field(default=tuple(TELEMETRY))
    telemetry_version: int = TELEMETRY_VERSION
    endings: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.action_repeat < 1:
            raise ValueError(f"action_repeat is at least 1, not {self.action_repeat}")
        if not 1 <= self.telemetry_version <= TELEMETRY_VERSION:
            raise ValueError(
                f"telemetry_version is {self.telemetry_version}; this code reads 1 to "
                f"{TELEMETRY_VERSION}"
            )
        if not set(self.telemetry) <= set(TELEMETRY):
            unknown = sorted(set(self.telemetry) - set(TELEMETRY))
            raise ValueError(f"telemetry: unknown names {', '.join(unknown)}")


@dataclass(frozen=True)
class ShardInfo:
    """One line of a data set's index: a shard that is whole on the disk.

    Attributes:
        file: name beside the index.
        sha256, bytes: of the file's content.
        rows: number of rows.
        episodes: start (row of the shard), length, track_seed, direction and scenario of each.
        split, schema_version, created, attributes: as in the shard itself.
    """

    file: str
    sha256: str
    bytes: int
    rows: int
    episodes: tuple[tuple[int, int, int, int, str], ...]
    split: str
    schema_version: int
    created: str
    attributes: Attributes

    def __post_init__(self) -> None:
        row = 0
        for start, length, *_ in self.episodes:
            if start != row or length < 1:
                raise ValueError(f"episodes do not follow each other at row {row}")
            row += length
        if row != self.rows or row == 0:
            raise ValueError(f"rows is {self.rows}, but the episodes have {row}")
