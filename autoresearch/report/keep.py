"""Keeps a campaign among the committed results: its ledger and the artifacts that it names."""

from __future__ import annotations

from pathlib import Path

from autoresearch.loop.ledger import LEDGER, Ledger
from autoresearch.loop.verify import verify
from common.errors import UserError
from common.files import atomic_write_bytes
from common.runs import ROOT

CAMPAIGNS = ROOT / "experiments" / "campaigns"


def kept(directory: Path = CAMPAIGNS) -> list[Path]:
    """The directories of all kept campaigns, sorted by name."""
    return sorted(path.parent for path in directory.glob(f"*/{LEDGER}"))


def keep(directory: Path, into: Path = CAMPAIGNS) -> Path:
    """Copy the campaign in `directory` to `into`/<its name>; returns that.

    Raises `UserError` for a campaign that does not verify, and if another campaign is kept under
    its name. An earlier part of the same ledger is replaced.
    """
    verify(directory)
    source, target = Ledger.reading(directory / LEDGER).rows, into / directory.name
    if (target / LEDGER).is_file():
        before = Ledger.reading(target / LEDGER).rows
        if source[: len(before)] != before:
            raise UserError(
                f"{target} holds another campaign of this name, or more of this one: give one of "
                "the two another name"
            )
    for row in source:
        if row.kind == "finished":
            name = f"artifacts/{row.data['artifact']}.json"
            atomic_write_bytes(target / name, (directory / name).read_bytes())
    # The ledger is written last, so that a kept ledger always has all its artifacts.
    atomic_write_bytes(target / LEDGER, b"".join(row.line() for row in source))
    return target
