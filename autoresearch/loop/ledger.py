"""The ledger of a campaign: an append-only, hash-chained file of JSON lines.

Every row carries the hash of the row before it, so that a changed, lost or inserted row is found. A
row is on the disk before anything relies on it. One process writes at a time; when that process
dies, the kernel frees its lock.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

from common.errors import UserError
from common.files import fsync_path, to_plain

LEDGER = "ledger.jsonl"
"""The file's name in the directory of a campaign."""


class RowKind(StrEnum):
    """What a row says.

    CAMPAIGN: it begins, with its configuration. RESUMED: a later process goes on. GENERATION: one
    opens. PROPOSED, REFUSED: a proposal becomes a candidate, or not. CLAIMED, RUNNING, FINISHED,
    FAILED: how far an attempt at a run has come. JUDGED: a gate decides on a candidate. PROMOTED: a
    candidate becomes the parent. CLOSED: a generation is done. ENDED: the search is over. OPENED:
    the sealed units are opened. FINAL: the verdict on them.
    """

    CAMPAIGN = "campaign"
    RESUMED = "resumed"
    GENERATION = "generation"
    PROPOSED = "proposed"
    REFUSED = "refused"
    CLAIMED = "claimed"
    RUNNING = "running"
    FINISHED = "finished"
    FAILED = "failed"
    JUDGED = "judged"
    PROMOTED = "promoted"
    CLOSED = "closed"
    ENDED = "ended"
    OPENED = "opened"
    FINAL = "final"


START = "0" * 64
"""The first row has this as the hash of the row before it."""


@dataclass(frozen=True)
class Row:
    """One event.

    Attributes:
        number: from 0 on, without gaps.
        time: UTC, ISO 8601, to the second.
        kind: a RowKind.
        data: what happened.
        before: hash of the row before.
        hash: SHA-256 over all of the above.
    """

    number: int
    time: str
    kind: str
    data: dict[str, Any]
    before: str
    hash: str

    @classmethod
    def after(cls, last: Row | None, kind: RowKind, data: Mapping[str, Any]) -> Row:
        """The row that follows `last`."""
        number, before = (last.number + 1, last.hash) if last else (0, START)
        now = datetime.now(UTC).isoformat(timespec="seconds")
        plain = to_plain(data)
        hash = _digest(number, now, kind, plain, before)
        return cls(number, now, kind, plain, before, hash)

    def line(self) -> bytes:
        """The row as it stands in the file, newline included."""
        return json.dumps(vars(self), ensure_ascii=False).encode() + b"\n"


class Ledger:
    """The rows of a ledger file; use `reading` or `writing`."""

    def __init__(self, path: Path, rows: list[Row], file: Any = None) -> None:
        self.path, self.rows, self._file = path, rows, file

    @classmethod
    def reading(cls, path: Path) -> Ledger:
        """The rows of the file, each checked. A last row that was written only in part is left out.

        Raises `UserError` for a missing file, and for damage, with the number of the line.
        """
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            raise UserError(f"{path}: no such ledger") from None
        except OSError as error:
            raise UserError(f"{path}: {error.strerror}") from None
        return cls(path, _parsed(path, content)[0])

    @classmethod
    @contextmanager
    def writing(cls, path: Path) -> Iterator[Ledger]:
        """Hold the ledger for this process while the body runs; makes the file if it is missing.

        A last row that was written only in part is cut off; nothing relied on it yet. Raises
        `UserError` for damage, and if another process holds the ledger.
        """
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            opened = open(path, "a+b", buffering=0)  # noqa: SIM115 (closed below)
        except OSError as error:
            raise UserError(f"cannot write {path}: {error.strerror}") from None
        with opened as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise UserError(
                    f"{path} is being written by another process; one campaign runs once at a time"
                ) from None
            file.seek(0)
            rows, whole = _parsed(path, file.read())
            file.truncate(whole)
            fsync_path(path.parent)
            yield cls(path, rows, file)

    def append(self, kind: RowKind, data: Mapping[str, Any]) -> Row:
        """Add a row; it is on the disk when this returns. `ValueError` for an unknown kind.

        Raises `OSError` where the disk has no room; the file then ends with the row before.
        """
        if self._file is None:
            raise RuntimeError("this ledger was opened for reading")
        row = Row.after(self.rows[-1] if self.rows else None, RowKind(kind), data)
        end = self._file.seek(0, os.SEEK_END)
        line = memoryview(row.line())
        try:
            while line:
                line = line[self._file.write(line) :]
            os.fsync(self._file.fileno())
        except OSError as error:
            self._file.truncate(end)
            error.filename = str(self.path)
            raise
        self.rows.append(row)
        return row


def _digest(number: int, time: str, kind: str, data: Mapping[str, Any], before: str) -> str:
    content = [number, time, kind, data, before]
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _parsed(path: Path, content: bytes) -> tuple[list[Row], int]:
    """The checked rows, and how many bytes they take; the rest is part of an unfinished row."""
    rows: list[Row] = []
    whole = content.rfind(b"\n") + 1
    for number, line in enumerate(content[:whole].splitlines()):
        row = _row(path, number, line)
        before = rows[-1].hash if rows else START
        if row.number != number or row.before != before:
            raise UserError(
                f"{path} line {number + 1}: the chain is broken, a row before it was changed, "
                "removed or inserted"
            )
        rows.append(row)
    return rows, whole


def _row(path: Path, number: int, line: bytes) -> Row:
    try:
        row = Row(**json.loads(line))
        right = row.hash == _digest(row.number, row.time, row.kind, row.data, row.before)
    except (ValueError, TypeError):
        right = False
    if not right:
        raise UserError(
            f"{path} line {number + 1} was changed: its hash is not that of its content"
        )
    if row.kind not in list(RowKind):
        raise UserError(f"{path} line {number + 1}: unknown kind of row, {row.kind!r}")
    return row
