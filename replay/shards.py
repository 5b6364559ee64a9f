"""Data sets on disk: immutable HDF5 shards beside an append-only index.

<root>/<dataset>/<split>/index.jsonl           one line per whole shard, in the order of rows
                         shard-<12 hex>.h5     flat arrays (see `schema.columns`), episode/...

A shard is written under a temporary name, flushed, renamed, and only then gets its line. Whatever
kills a writer costs the shard in work and nothing else; several writers may share a directory.

Observations are stored contiguously and uncompressed. By `scripts/bench_replay.py` (numbers in
experiments/records/replay_speed.json), gzip makes files 16 times smaller and reading 10 times
slower: a batch of 16 windows of 50 frames then takes 48 ms, which is 6 % of a training step at
1,000 frames/s and more than all of one on a GPU, instead of 5 ms. Contiguous frames are read past
HDF5, straight into the batch, as fast as HDF5 at its best; and no handle stays open, so that
threads, forks and long runs have nothing to trip over.
"""

import fcntl
import hashlib
import json
import os
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import h5py
import numpy as np
from numpy.typing import NDArray

from common.errors import UserError
from common.files import append_jsonl, remove_temporaries, replacing, to_plain
from common.keys import unknown_choice
from replay.index import (
    INDEX,
    Verification,
    damage_of,
    read_index,
    split_path,
    unindexed,
    verify,
)
from replay.schema import (
    EPISODE_DTYPE,
    SCHEMA_VERSION,
    Attributes,
    Episode,
    ShardInfo,
    columns,
)

MAX_ROWS = 2048
"""Rows after which a shard is closed: 57 MB, the most that a killed writer loses."""


class ShardWriter:
    """Adds episodes to a split, a shard at a time; use it in a `with` statement.

    A shard is closed when it has `max_rows` rows or more (episodes are never divided) and at the
    end of the `with` body. If the body raises, the episodes of the shard in work are dropped.

    Args:
        root, dataset, split: the data set is at `<root>/<dataset>/<split>`.
        attributes: of every shard that this writer makes.
        max_rows: as above; the writer holds up to three times as many frames in memory.

    Raises:
        UserError: names that are no directory's, or a file in its place.
        OSError: the disk is full or may not be written to; nothing that was whole is touched.
    """

    def __init__(
        self,
        root: str | os.PathLike,
        dataset: str,
        split: str,
        attributes: Attributes,
        *,
        max_rows: int = MAX_ROWS,
    ) -> None:
        if max_rows < 1:
            raise UserError(f"max_rows is at least 1, not {max_rows}")
        self.path = split_path(root, dataset, split)
        self.attributes = attributes
        self._split = split
        self._max_rows = max_rows
        self._episodes: list[Episode] = []
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError) as error:
            raise UserError(f"cannot write to {self.path}: {error.strerror}") from None
        self._lock = os.open(self.path / ".lock", os.O_RDWR | os.O_CREAT, 0o666)
        try:
            # Alone here, so every temporary file is a dead writer's.
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            remove_temporaries(self.path)
        except BlockingIOError:
            pass
        fcntl.flock(self._lock, fcntl.LOCK_SH)

    def __enter__(self) -> "ShardWriter":
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: Any) -> None:
        try:
            if kind is None:
                self.flush()
        finally:
            os.close(self._lock)

    @property
    def pending_rows(self) -> int:
        """Rows that are not on the disk yet."""
        return sum(map(len, self._episodes))

    def add(self, episode: Episode) -> None:
        """Take an episode; its arrays must not change afterwards.

        Raises:
            UserError: its telemetry is not what `attributes.telemetry` names.
        """
        expected, found = set(self.attributes.telemetry), set(episode.telemetry)
        if expected != found:
            wrong = [f"lacks {name}" for name in sorted(expected - found)]
            wrong += [f"has an unannounced {name}" for name in sorted(found - expected)]
            raise UserError(
                f"{self.path}: the telemetry of an episode ({episode.scenario}, track seed "
                f"{episode.track_seed}) {', '.join(wrong)}"
            )
        self._episodes.append(episode)
        if self.pending_rows >= self._max_rows:
            self.flush()

    def flush(self) -> None:
        """Write what is pending as a shard of its own."""
        if not self._episodes:
            return
        lengths = [len(episode) for episode in self._episodes]
        starts = np.cumsum([0, *lengths[:-1]])
        created = datetime.now(UTC).isoformat(timespec="seconds")
        table = [
            (int(start), length, int(e.track_seed), int(e.direction), e.scenario)
            for start, length, e in zip(starts, lengths, self._episodes, strict=True)
        ]
        image = self._image(table, created)
        path = self.path / f"shard-{secrets.token_hex(6)}.h5"
        info = ShardInfo(
            file=path.name,
            sha256=hashlib.sha256(image).hexdigest(),
            bytes=len(image),
            rows=sum(lengths),
            episodes=tuple(table),
            split=self._split,
            schema_version=SCHEMA_VERSION,
            created=created,
            attributes=self.attributes,
        )
        with replacing(path) as temporary:
            temporary.write_bytes(image)
        try:
            append_jsonl(self.path / INDEX, asdict(info))
        except OSError:
            path.unlink()
            raise
        self._episodes.clear()

    def _image(self, table: list[tuple[int, int, int, int, str]], created: str) -> bytes:
        """The shard as HDF5, made in memory.

        So its hash is of what was meant, and a full disk meets one plain write, not HDF5, which
        cannot close a file that it could not write.
        """
        rows = sum(length for _, length, *_ in table)
        plain = to_plain(self.attributes)
        plain |= {"schema_version": SCHEMA_VERSION, "split": self._split, "created": created}
        block = 1 << 24  # bytes by which the image grows
        with h5py.File("shard", "w", driver="core", backing_store=False, block_size=block) as file:
            for name, value in plain.items():
                structured = isinstance(value, dict | list)
                file.attrs[name] = json.dumps(value) if structured else value
            for name, column in columns(self.attributes.telemetry).items():
                data = file.create_dataset(name, (rows, *column.shape), column.dtype)
                for (start, length, *_), episode in zip(table, self._episodes, strict=True):
                    data[start : start + length] = episode.arrays[name]
            episodes = np.array(table, EPISODE_DTYPE)
            for name in EPISODE_DTYPE.names:
                values = episodes[name]
                kind = h5py.string_dtype() if values.dtype.kind == "U" else values.dtype
                file.create_dataset(f"episode/{name}", data=values.astype(kind), dtype=kind)
            file.flush()
            return file.id.get_file_image()


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
            except UserError as damage:
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
            starts: (batch,) first rows.
            length: rows of each.
            names: which arrays, as in `schema.columns`; None for all that there are.
            out: what an earlier call returned, to be filled again instead of new arrays (half the
                time of a large batch goes into fresh memory); `names` is then not used.

        Returns:
            Arrays (batch, length, ...) by name.

        Raises:
            UserError: an array that the data set does not have, or a shard that cannot be read.
            IndexError: rows that it does not have.
            ValueError: an array of `out` has another shape or type.
        """
        starts = np.asarray(starts)
        if length < 1 or (starts < 0).any() or (starts > self.rows - length).any():
            raise IndexError(f"{self.path} has rows 0 to {self.rows - 1}, not {length} at {starts}")
        if out is not None:
            names = out
        wanted = list(self._columns if names is None else names)
        for name in wanted:
            self._check_name(name)
        shapes = {name: (*starts.shape, length, *self._columns[name].shape) for name in wanted}
        if out is None:
            out = {name: np.empty(shapes[name], self._columns[name].dtype) for name in wanted}
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
        raise UserError(f"{path} is damaged: it {damage}")
    expected = columns(info.attributes.telemetry)
    arrays: dict[str, np.ndarray] = {}
    try:
        with h5py.File(path, "r", locking=False) as file:
            for name, column in expected.items():
                data = file[name]
                if data.shape != (info.rows, *column.shape) or data.dtype != column.dtype:
                    raise UserError(f"{path} is damaged: {name} is {data.dtype} {data.shape}")
                if name != "observation":
                    arrays[name] = data[()]
            offset = file["observation"].id.get_offset()
    except (OSError, KeyError, RuntimeError) as error:
        raise UserError(f"{path} is damaged: {error}") from None
    if offset is None:
        raise UserError(f"{path} is damaged: its observations are not contiguous")
    return offset, arrays
