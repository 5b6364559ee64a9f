"""Reading a data set: every small array in memory, frames straight from the shards."""

import hashlib
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal

import h5py
import numpy as np
from numpy.typing import ArrayLike, NDArray

from common.errors import UserError
from common.keys import unknown_choice
from replay.index import (
    DamagedShard,
    Verification,
    damage_of,
    read_index,
    split_path,
    unindexed,
    verify,
)
from replay.schema import EPISODE_DTYPE, ShardInfo, columns


class DataSet:
    """What one split held when it was opened: every small array in memory, frames on the disk.

    Rows are numbered through all shards, in the order of the index, so numbers stay valid while
    the data set grows. An episode's rows follow each other, and so do episodes: a window may run
    from one into the next, also from shard to shard, where `is_first` marks the new one. No file
    stays open: an instance can be used by threads, after a fork, and be sent to other processes.

    Args:
        root, dataset, split: the data set is at `<root>/<dataset>/<split>`.
        on_damage: "refuse" a data set with a damaged shard, or "skip" such shards.
        check: compare the hash of every shard, which takes about a second per GB; without it, only
            their sizes and that HDF5 can read them.

    Attributes:
        path: the split's directory.
        shards: list of `ShardInfo`, without the skipped.
        skipped: file -> what is wrong with it.
        unindexed: files of shards without a line in the index: no part of the data set. A writer
            is about to add the line, or was killed before it could, or the index lost it.
        rows: number of rows.
        episodes: `EPISODE_DTYPE` array, starts numbered as rows of this data set.
        attributes: of the first shard; telemetry, action_repeat, camera and reward are those of
            every shard.

    Raises:
        UserError: no such data set, another schema version, shards that do not belong together,
            or damage (naming the file).
    """

    def __init__(
        self,
        root: str | os.PathLike,
        dataset: str,
        split: str,
        on_damage: Literal["refuse", "skip"] = "refuse",
        *,
        check: bool = True,
    ) -> None:
        if on_damage not in ("refuse", "skip"):
            raise unknown_choice("on_damage", on_damage, ("refuse", "skip"))
        self.path = split_path(root, dataset, split)
        self.shards: list[ShardInfo] = []
        self.skipped: dict[str, str] = {}
        self._offsets: list[int] = []
        parts: list[dict[str, np.ndarray]] = []
        for info in read_index(self.path):
            try:
                offset, small = _load(self.path / info.file, info, check)
            except DamagedShard as damage:
                if on_damage == "refuse":
                    raise UserError(
                        f"{damage}; collect the data set anew, or train without that shard by "
                        "data.on_damage=skip"
                    ) from None
                self.skipped[info.file] = str(damage)
                continue
            self.shards.append(info)
            self._offsets.append(offset)
            parts.append(small)
        known = [*(info.file for info in self.shards), *self.skipped]
        self.unindexed = unindexed(self.path, known)
        if not self.shards:
            raise UserError(f"{self.path}: none of the {len(self.skipped)} shards is whole")
        self.attributes = self.shards[0].attributes
        self._columns = columns(self.attributes.telemetry)
        self._small = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        lengths = [info.rows for info in self.shards]
        self._starts = np.cumsum([0, *lengths[:-1]])
        self.rows = sum(lengths)
        self.episodes = np.concatenate(
            [np.array(list(i.episodes), EPISODE_DTYPE) for i in self.shards]
        )
        self.episodes["start"] += np.repeat(self._starts, [len(i.episodes) for i in self.shards])

    @property
    def sha256(self) -> str:
        """Hash over the content of all rows, for manifests."""
        return hashlib.sha256("".join(i.sha256 for i in self.shards).encode()).hexdigest()

    def verify(self) -> Verification:
        """`verify` of this data set as it is now."""
        split = self.path
        return verify(split.parents[1], split.parent.name, split.name)

    def column(self, name: str) -> np.ndarray:
        """(rows, ...) array called `name` in `schema.columns`, such as "telemetry/speed".

        Not a copy: leave it as it is. Frames do not fit in memory: read them as windows.
        """
        if name == "observation":
            raise UserError("observations are read as windows, not as one array")
        self._check_name(name)
        return self._small[name]

    def window(
        self, start: int, length: int, names: Iterable[str] | None = None
    ) -> dict[str, np.ndarray]:
        """Rows `start` to `start + length` as arrays (length, ...) by name; see `windows`."""
        return {name: array[0] for name, array in self.windows([start], length, names).items()}

    def windows(
        self,
        starts: Sequence[int] | NDArray[np.integer],
        length: int,
        names: Iterable[str] | None = None,
        *,
        out: dict[str, np.ndarray] | None = None,
    ) -> dict[str, np.ndarray]:
        """Copies of equally long runs of rows.

        Args:
            starts: (batch,) first rows, whole numbers; none give arrays of no windows.
            length: rows of each, at least 1.
            names: which arrays, as in `schema.columns`; None for all that there are.
            out: what an earlier call returned, to be filled again instead of new arrays (half the
                time of a large batch goes into fresh memory); `names` is then not used.

        Returns:
            Arrays (batch, length, ...) by name.

        Raises:
            UserError: an array that the data set does not have, or a shard that cannot be read.
            IndexError: rows that it does not have.
            ValueError: `starts` that are not a list of whole numbers, or an array of `out` that
                has another shape or type.
        """
        starts = self._checked_starts(starts, length)
        if out is not None:
            names = out
        chosen = list(self._columns if names is None else names)
        for name in chosen:
            self._check_name(name)
        shapes = {name: (*starts.shape, length, *self._columns[name].shape) for name in chosen}
        if out is None:
            out = {name: np.empty(shapes[name], self._columns[name].dtype) for name in chosen}
        rows = starts[:, None] + np.arange(length)
        for name, array in out.items():
            kind = self._columns[name].dtype
            if array.shape != shapes[name] or array.dtype != kind or not array.flags.c_contiguous:
                raise ValueError(
                    f"{name} to fill is C-contiguous {kind} {shapes[name]}, not {array.dtype} "
                    f"{array.shape}"
                )
            if name == "observation":
                for window, start in zip(array, starts.tolist(), strict=True):
                    self._read_frames(start, window)
            else:
                array[:] = self._small[name][rows]
        return out

    def _checked_starts(self, starts: ArrayLike, length: int) -> NDArray[np.integer]:
        """`starts` as an array, if `length` rows of this data set follow from each of them on."""
        array = np.asarray(starts)
        if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
            raise ValueError(
                f"starts are a list of whole numbers, not {array.dtype} of shape {array.shape}"
            )
        if length < 1 or (array < 0).any() or (array > self.rows - length).any():
            raise IndexError(f"{self.path} has rows 0 to {self.rows - 1}, not {length} at {array}")
        return array.astype(np.int64)

    def _check_name(self, name: str) -> None:
        if name not in self._columns:
            raise UserError(
                f"{self.path} has no {name!r}: it was recorded with {', '.join(self._columns)}"
            )

    def _read_frames(self, start: int, frames: NDArray[np.uint8]) -> None:
        """Fill `frames` (length, 96, 96, 3) with the observations from row `start` on."""
        while len(frames):
            shard = int(np.searchsorted(self._starts, start, side="right")) - 1
            row = start - int(self._starts[shard])
            part = frames[: self.shards[shard].rows - row]
            path = self.path / self.shards[shard].file
            offset = self._offsets[shard] + row * part[0].nbytes
            try:
                file = os.open(path, os.O_RDONLY)
                try:
                    count = os.preadv(file, [part.reshape(-1)], offset)
                finally:
                    os.close(file)
            except OSError as error:
                raise UserError(f"{path} cannot be read: {error.strerror}") from None
            if count != part.nbytes:
                raise UserError(f"{path} is damaged: it ends early")
            start, frames = start + len(part), frames[len(part) :]


def _load(path: Path, info: ShardInfo, check: bool) -> tuple[int, dict[str, np.ndarray]]:
    """Where a shard's observations start in its file (bytes), and its other arrays."""
    damage = damage_of(path, info, check)
    if damage:
        raise DamagedShard(f"{path} is damaged: it {damage}")
    expected = columns(info.attributes.telemetry)
    arrays: dict[str, np.ndarray] = {}
    try:
        # By a file of our own: HDF5 refuses a path that this process holds open in another way.
        with open(path, "rb") as raw, h5py.File(raw, "r") as file:
            for name, column in expected.items():
                data = file[name]
                if data.shape != (info.rows, *column.shape) or data.dtype != column.dtype:
                    raise DamagedShard(f"{path} is damaged: {name} is {data.dtype} {data.shape}")
                if name != "observation":
                    arrays[name] = data[()]
            offset = file["observation"].id.get_offset()
    except (OSError, KeyError, RuntimeError) as error:
        raise DamagedShard(f"{path} is damaged: {error}") from None
    if offset is None:
        raise DamagedShard(f"{path} is damaged: its observations are not contiguous")
    return offset, arrays
