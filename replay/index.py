"""The index of a split: which shards it has, and whether they are still what was written."""

import errno
import os
import re
import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from common import schema as schemas
from common.errors import UserError
from common.files import read_jsonl, sha256_file
from replay.schema import SCHEMA_VERSION, ShardInfo

INDEX = "index.jsonl"

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,79}")
_LOST = {errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EIO}
"""Errors that say that the content is gone; any other is a trouble of the process that reads."""

_COMMON = ("telemetry", "telemetry_version", "action_repeat", "camera", "reward")
"""What rows must share to be samples of one thing."""

UNVERSIONED = 1
"""Version of the telemetry's declaration in shards that do not name it."""


class DamagedShard(UserError):
    """A shard that is not what was written: only this may be skipped."""


def split_path(root: str | os.PathLike, dataset: str, split: str) -> Path:
    """The directory of one split; `UserError` for names that are no directory's."""
    for what, name in (("data set", dataset), ("split", split)):
        if not _NAME.fullmatch(name):
            raise UserError(f"the name of a {what} has letters, digits, _ and -, not {name!r}")
    return Path(root) / dataset / split


def read_index(path: Path) -> list[ShardInfo]:
    """The whole shards of the split at `path`, in the order of their rows.

    Raises:
        UserError: no such data set, another schema version, or shards that do not belong together.
    """
    if not path.is_dir():
        raise UserError(f"{path}: no such data set; {_how_to_get(path)}")
    index = path / INDEX
    shards: list[ShardInfo] = []
    for number, row in enumerate(read_jsonl(index), start=1):
        version = row.get("schema_version")
        if version != SCHEMA_VERSION:
            raise UserError(
                f"{index} line {number}: schema version {version}; this code reads {SCHEMA_VERSION}"
            )
        if isinstance(row.get("attributes"), dict):
            row["attributes"].setdefault("telemetry_version", UNVERSIONED)
        try:
            info = schemas.build(ShardInfo, row)
        except UserError as error:
            raise UserError(f"{index} line {number}: {error}") from None
        if any(info.file == other.file for other in shards):
            raise UserError(
                f"{index} line {number}: {info.file} is listed a second time, and its rows would "
                "count twice; remove the line"
            )
        shards.append(info)
        for name in _COMMON:
            if getattr(info.attributes, name) != getattr(shards[0].attributes, name):
                raise UserError(
                    f"{path}: {info.file} and {shards[0].file} have different {name}; collect "
                    "them as two data sets"
                )
    if not shards:
        raise UserError(f"{path}: no shard is complete yet; {_how_to_get(path)}")
    return shards


def collect_command(path: Path) -> str:
    """The command that collects the split at `path`, or more of it."""
    root = path.parents[1]
    place = "" if root == Path("data") else f" root={shlex.quote(str(root))}"
    return f"python scripts/collect_replay.py dataset={path.parent.name}{place}"


def _how_to_get(path: Path) -> str:
    """The command that collects the split at `path`, and what there is instead."""
    root = path.parents[1]
    present = sorted(str(p.parent.relative_to(root)) for p in root.glob(f"*/*/{INDEX}"))
    hint = f" (there are {', '.join(present)})" if present else ""
    return f"collect it by {collect_command(path)}{hint}"


def damage_of(path: Path, info: ShardInfo, check: bool = True) -> str | None:
    """What is wrong with a shard, or None; without `check`, only its size is compared.

    Raises:
        UserError: the shard may be whole, but this process cannot read it (no permission, too many
            open files).
    """
    try:
        size = path.stat().st_size
        if size != info.bytes:
            return f"has {size} bytes, not {info.bytes}"
        if check and sha256_file(path) != info.sha256:
            return "is not what was written (SHA-256)"
        if not check:
            with open(path, "rb"):
                pass
    except OSError as error:
        if error.errno not in _LOST:
            raise UserError(f"{path} cannot be read: {error.strerror}") from None
        return f"cannot be read: {error.strerror}"
    return None


@dataclass(frozen=True)
class Verification:
    """What `verify` found.

    Attributes:
        damaged: file -> what is wrong with it.
        unindexed: shards without a line in the index, no part of the data set. Unless a writer is
            about to add the line, one was killed before it could, and the file can be deleted.
    """

    damaged: dict[str, str]
    unindexed: list[str]


def verify(root: str | os.PathLike, dataset: str, split: str) -> Verification:
    """Compare every shard with the index, byte by byte (SHA-256)."""
    path = split_path(root, dataset, split)
    shards = read_index(path)
    problems = {info.file: damage_of(path / info.file, info) for info in shards}
    return Verification(
        damaged={file: problem for file, problem in problems.items() if problem},
        unindexed=unindexed(path, problems),
    )


def unindexed(path: Path, known: Iterable[str]) -> list[str]:
    """Files of shards in `path` that are not among the `known` ones of its index."""
    return sorted({file.name for file in path.glob("shard-*.h5")} - set(known))
