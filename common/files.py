"""Files that are whole or absent, even if the process that writes them is killed.

A file is written under a temporary name in the same directory, flushed to the disk and renamed. So
a reader sees either the old content or the new, never a part of it. JSON is strict: values that
JSON lacks (NaN, infinity) become null. JSON-lines files grow row by row, and readers leave out an
incomplete last row. POSIX only, because of rename and flock.
"""

import dataclasses
import enum
import errno
import fcntl
import hashlib
import json
import math
import os
import re
import secrets
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from common.errors import UserError

_CHUNK = 1 << 20
# Errors that mean: no file can be written at this path, by anybody.
_NO_PLACE = {errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.ELOOP}
_TEMPORARY = re.compile(r"\..*\.[0-9a-f]{12}\.tmp(\.|$)")


@contextmanager
def replacing(path: str | os.PathLike) -> Iterator[Path]:
    """Yield a temporary path with the suffix of `path`; on success it atomically becomes `path`.

    For writers that want a file name (`torch.save`, video encoders, HDF5). Missing parent
    directories are made. If the body raises, `path` is unchanged and the temporary file is removed.
    A process that is killed in between leaves a hidden `.<stem>.<hex>.tmp<suffix>` for
    `remove_temporaries`. Raises `UserError` if no file can be at `path` (it is a directory, or its
    parent is a file).
    """
    path = Path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        if error.errno in _NO_PLACE | {errno.ENOENT, errno.EEXIST}:
            raise UserError(f"cannot write {path}: {error.strerror}: {error.filename}") from None
        raise
    temporary = path.with_name(f".{path.stem}.{secrets.token_hex(6)}.tmp{path.suffix}")
    try:
        yield temporary
        fsync_path(temporary)
        os.replace(temporary, path)
    except BaseException as error:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename in (None, str(temporary)):
            # The reader knows the real name, not the temporary one.
            if error.errno in _NO_PLACE:
                raise UserError(f"cannot write {path}: {error.strerror}") from error
            try:
                error.filename = str(path)
            except AttributeError:  # PyAV's errors cannot be changed
                raise OSError(error.errno, error.strerror, str(path)) from error
        raise
    fsync_path(path.parent)  # the rename itself must survive a power cut


def remove_temporaries(directory: str | os.PathLike) -> list[Path]:
    """Delete what killed writers left anywhere below `directory`; returns the deleted paths.

    Call it only while holding the lock that keeps other writers out.
    """
    leftovers = [path for path in Path(directory).rglob(".*.tmp*") if _TEMPORARY.match(path.name)]
    for leftover in leftovers:
        leftover.unlink(missing_ok=True)
    return leftovers


def atomic_write_bytes(path: str | os.PathLike, data: bytes) -> None:
    """Replace the content of `path` by `data`, all or nothing."""
    with replacing(path) as temporary:
        temporary.write_bytes(data)


def atomic_write_text(path: str | os.PathLike, text: str) -> None:
    """Replace the content of `path` by `text` in UTF-8, all or nothing."""
    atomic_write_bytes(path, text.encode())


def to_plain(value: Any, *, finite: bool = True) -> Any:
    """`value` in the types that JSON has: dict, list, str, int, float, bool, None.

    Takes numpy scalars and arrays, dataclass instances, mappings, sequences, sets (sorted), paths
    and enums (by value). NaN and infinities become None, or stay with `finite=False` (for YAML,
    which has them). Anything else raises `TypeError`.
    """

    def plain(item: Any) -> Any:
        return to_plain(item, finite=finite)

    match value:
        case None | bool() | str():
            return value
        case np.generic() | np.ndarray():
            return plain(value.tolist())
        case enum.Enum():
            return plain(value.value)
        case int():
            return int(value)
        case float():
            return None if finite and not math.isfinite(value) else float(value)
        case os.PathLike():
            return os.fspath(value)
        case Mapping():
            return {_plain_key(key): plain(item) for key, item in value.items()}
        case list() | tuple():
            return [plain(item) for item in value]
        case set() | frozenset():
            return sorted(plain(item) for item in value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = dataclasses.fields(value)
        return {field.name: plain(getattr(value, field.name)) for field in fields}
    raise TypeError(f"cannot write a {type(value).__name__} as JSON: {value!r}")


def write_json(path: str | os.PathLike, obj: Any) -> None:
    """Write `obj` (see `to_plain`) as indented JSON, all or nothing."""
    atomic_write_text(path, json.dumps(to_plain(obj), indent=2, ensure_ascii=False) + "\n")


def read_json(path: str | os.PathLike) -> Any:
    """The content of a JSON file; `UserError` names a file that is missing or damaged."""
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise UserError(f"{path} is not valid JSON: {error}") from None


def json_line(row: Mapping[str, Any]) -> str:
    """`row` (see `to_plain`) as one line of a JSON-lines file, newline included."""
    return json.dumps(to_plain(row), ensure_ascii=False) + "\n"


def append_jsonl(path: str | os.PathLike, row: Mapping[str, Any]) -> None:
    """Append `row` as one line of JSON. Several processes may do so at the same time.

    A process that is killed leaves at most one incomplete line, its last. The next call removes it.
    A row reaches the operating system at once, but not the disk: a power cut can lose the latest.
    """
    path = Path(path)
    line = json_line(row).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a+b", buffering=0) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        end = _repair_tail(file)
        try:
            written = file.write(line)
            while written < len(line):
                written += file.write(line[written:])
        except OSError as error:
            file.truncate(end)
            error.filename = str(path)
            raise


def read_jsonl(path: str | os.PathLike) -> list[dict[str, Any]]:
    """All rows of a JSON-lines file; a missing file has none.

    An incomplete last line is left out, because a crash can cause it. Damage anywhere else raises
    `UserError` with the line number.
    """
    try:
        lines = Path(path).read_bytes().split(b"\n")
    except FileNotFoundError:
        return []
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from None
    rows = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            if number == len(lines):
                break
            raise UserError(f"{path} line {number} is not valid JSON: {error}") from None
        if not isinstance(row, dict):
            raise UserError(f"{path} line {number} is not a JSON object")
        rows.append(row)
    return rows


def sha256_file(path: str | os.PathLike) -> str:
    """SHA-256 of a file's content, in hex."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sha256_tree(root: str | os.PathLike, patterns: Iterable[str], but: Iterable[str] = ()) -> str:
    """SHA-256, in hex, over names and contents of the files below `root` that match `patterns`,
    and none of `but`.

    Patterns are those of `Path.glob` (`"common/**/*.py"`). The hash depends on relative
    names and bytes only, not on the location of the tree, on file times or on the order of listing.
    """
    root = Path(root)
    files = {path for pattern in patterns for path in root.glob(pattern) if path.is_file()}
    files -= {path for pattern in but for path in root.glob(pattern)}
    digest = hashlib.sha256()
    for name, path in sorted((path.relative_to(root).as_posix(), path) for path in files):
        digest.update(f"{sha256_file(path)} {name}\n".encode())
    return digest.hexdigest()


def _plain_key(key: Any) -> str:
    if isinstance(key, str):
        return key
    plain = to_plain(key)
    if isinstance(plain, dict | list) or plain is None:
        raise TypeError(f"cannot use {key!r} as a JSON key")
    return str(plain)


def _repair_tail(file: Any) -> int:
    """Make the file end with a whole line and return its length; the caller holds the lock.

    A last line without a newline is kept if it is whole JSON (someone edited the file by hand).
    """
    end = file.seek(0, os.SEEK_END)
    if end == 0:
        return 0
    file.seek(end - 1)
    if file.read(1) == b"\n":
        return end
    start = end
    tail = b""
    while start > 0 and b"\n" not in tail:
        step = min(_CHUNK, start)
        start -= step
        file.seek(start)
        tail = file.read(step) + tail
    torn = tail.rpartition(b"\n")[2]
    try:
        json.loads(torn)
    except ValueError:
        file.truncate(end - len(torn))
        return end - len(torn)
    file.write(b"\n")
    return end + 1


def fsync_path(path: Path) -> None:
    """Wait until the content of a file, or the names in a directory, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
