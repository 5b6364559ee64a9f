"""Committed results: `experiments/records/<name>.json`, which the report reads."""

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
    """Raise `UserError` unless `name` is safe as a file name; `what` names it in the message."""
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
        command: the command that computes it again.
        settings: the settings of that command.
        metrics: name -> number, or {"mean", "low", "high", "n"}.
        artifacts: names of files beside the record (curves, figures).
        details: longer data of the result, such as rows or curves.
        provenance: `code` and `machine` of the run that made the numbers. The default is this
            process.

    Raises:
        UserError: `name` cannot be a file name.
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
