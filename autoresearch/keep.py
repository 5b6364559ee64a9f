"""Keeps a campaign among the committed results: its ledger, and the artifacts that this names."""

from __future__ import annotations

from pathlib import Path

from autoresearch.campaign import LEDGER
from autoresearch.ledger import Ledger
from autoresearch.verify import verify
from common.errors import UserError
from common.files import atomic_write_bytes
from common.runs import ROOT

CAMPAIGNS = ROOT / "experiments" / "campaigns"


def kept(directory: Path = CAMPAIGNS) -> list[Path]:
    """The directories of the campaigns that are kept, by name."""
    return sorted(path.parent for path in directory.glob(f"*/{LEDGER}"))


def keep(directory: Path, into: Path = CAMPAIGNS) -> Path:
    """Copy the campaign in `directory` to `into`/<its name>; returns that.

    Raises `UserError` for a campaign that does not verify, and where another one is kept under the
    name: what is there may only be an earlier part of the same ledger.
    """
    verify(directory)
    target = into / directory.name
    content = (directory / LEDGER).read_bytes()
    if (target / LEDGER).is_file() and not content.startswith((target / LEDGER).read_bytes()):
        raise UserError(
            f"{target} holds another campaign of this name: give one of the two another name"
        )
    for row in Ledger.reading(directory / LEDGER).rows:
        if row.kind == "finished":
            name = f"{row.data['artifact']}.json"
            if not (target / "artifacts" / name).is_file():
                found = (directory / "artifacts" / name).read_bytes()
                atomic_write_bytes(target / "artifacts" / name, found)
    # Last, so that a ledger that is there has all its artifacts.
    atomic_write_bytes(target / LEDGER, content)
    return target
