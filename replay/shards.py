"""Data sets on disk: immutable HDF5 shards beside an append-only index.

<root>/<dataset>/<split>/index.jsonl           one line per whole shard, in the order of rows
                         shard-<12 hex>.h5     flat arrays (see `schema.columns`), episode/...

A shard is written under a temporary name, flushed, renamed, and only then gets its line. Whatever
kills a writer costs the shard in work and nothing else; several writers may share a directory.

`replay.dataset` reads what this writes.

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
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import h5py
import numpy as np

from common.errors import UserError
from common.files import append_jsonl, remove_temporaries, replacing, to_plain
from replay.index import (
    INDEX,
    split_path,
)
from replay.schema import (
    EPISODE_DTYPE,
    SCHEMA_VERSION,
    Attributes,
    Episode,
    ShardInfo,
    columns,
    stored_seed,
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
        expected, present = set(self.attributes.telemetry), set(episode.telemetry)
        if expected != present:
            wrong = [f"lacks {name}" for name in sorted(expected - present)]
            wrong += [f"has an unannounced {name}" for name in sorted(present - expected)]
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
            (int(start), length, stored_seed(e.track_seed), int(e.direction), e.scenario)
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
