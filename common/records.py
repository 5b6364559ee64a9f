"""Results worth keeping: `experiments/records/<name>.json`, committed and read by the report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from common.files import write_json
from common.runs import ROOT, code_state, machine

RECORDS = ROOT / "experiments" / "records"


def write_record(
    name: str,
    *,
    command: str,
    settings: Mapping[str, Any],
    metrics: Mapping[str, Any],
    artifacts: Sequence[str] = (),
    details: Mapping[str, Any] | None = None,
    directory: Path = RECORDS,
) -> Path:
    """Write the record `name` atomically and return its path.

    Args:
        command: what recomputes it.
        settings: what the command was given.
        metrics: name -> number, or {"mean", "low", "high", "n"}.
        artifacts: files beside the record (curves, figures), by name.
        details: anything longer that belongs to it, such as rows or curves.
    """
    record = {
        "name": name,
        "command": command,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "code": code_state(),
        "machine": machine(),
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
