"""Results worth keeping: `experiments/records/<name>.json`, committed and read by the report."""

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from common.errors import UserError
from common.files import read_json, write_json
from common.runs import ROOT, code_state, machine

RECORDS = ROOT / "experiments" / "records"

_KEYS = {"name", "command", "created", "code", "machine", "settings", "metrics"}
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,79}")


def check_name(name: str, what: str = "a record's name") -> None:
    """Raise `UserError`, which says `what` is wrong, unless `name` is safe as a file's stem."""
    if not _NAME.fullmatch(name):
        raise UserError(f"{what} has only a-z, 0-9, _ and -, not {name!r}")


def write_record(
    name: str,
    *,
    command: str,
    settings: Mapping[str, Any],
    metrics: Mapping[str, Any],
    artifacts: Sequence[str] = (),
    details: Mapping[str, Any] | None = None,
    provenance: Mapping[str, Any] | None = None,
    directory: Path = RECORDS,
) -> Path:
    """Write the record `name` atomically and return its path.

    Args:
        name: lower-case letters, digits, `_` and `-`.
        command: what recomputes it.
        settings: what the command was given.
        metrics: name -> number, or {"mean", "low", "high", "n"}.
        artifacts: files beside the record (curves, figures), by name.
        details: anything longer that belongs to it, such as rows or curves.
        provenance: `code` and `machine` of the run that made the numbers; by default those of this
            process.

    Raises:
        UserError: a name that is no file name.
    """
    check_name(name)
    made = dict(provenance or {"code": code_state(), "machine": machine()})
    record = {
        "name": name,
        "command": command,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "code": made["code"],
        "machine": made["machine"],
        "settings": settings,
        "metrics": metrics,
        "artifacts": list(artifacts),
    }
    if details:
        record["details"] = details
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{name}.json"
    write_json(path, record)
    return path


def read_record(name: str, directory: Path = RECORDS) -> dict[str, Any] | None:
    """The record `name`, or None if nobody has made it yet; `UserError` for a damaged one."""
    path = directory / f"{name}.json"
    if not path.is_file():
        return None
    record = read_json(path)
    if not isinstance(record, dict) or not record.keys() >= _KEYS:
        raise UserError(f"{path} is damaged: a record has {', '.join(sorted(_KEYS))}")
    return record
