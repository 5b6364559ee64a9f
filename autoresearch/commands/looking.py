"""Commands that look at a campaign and do not change it: status, verify, show, keep, earlier."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from autoresearch.commands.running import numbers
from autoresearch.commands.settings import begun, load
from autoresearch.judge.earlier import CLAIMS, objections_to
from autoresearch.loop.ledger import LEDGER, Ledger, RowKind
from autoresearch.loop.verify import verify as verify_campaign
from autoresearch.report.display import console, overview
from autoresearch.report.keep import CAMPAIGNS
from autoresearch.report.keep import keep as keep_campaign
from autoresearch.report.summary import summarize
from common import cli
from common.errors import ConfigError, UserError


def status(words: Sequence[str]) -> None:
    """Print where a campaign is."""
    place, _ = begun(words)
    summary = summarize(place.directory)
    screen = console()
    screen.print(overview(summary.config, summary.state))
    for note in summary.notes:
        screen.print(note, highlight=False)
    cli.finish(numbers(summary))


def verify(words: Sequence[str]) -> None:
    """Make every decision of a campaign again."""
    place, _ = begun(words)
    verified = verify_campaign(place.directory)
    cli.finish({**vars(verified), "verified": True})


def keep(words: Sequence[str]) -> None:
    """Copy a campaign to the committed results."""
    place, options = begun(words, ("into",))
    if place.committed and "into" not in options:
        raise UserError(f"{place.directory} is kept already; name another place with into=")
    into = Path(options.get("into") or CAMPAIGNS)
    cli.finish({"kept": str(keep_campaign(place.directory, into))})


def show(words: Sequence[str]) -> None:
    """Print everything that the ledger says of one candidate or run."""
    names = [word for word in words if "=" not in word]
    if len(names) != 1:
        raise ConfigError("show takes one name, such as g001_c02 or run_008")
    place, _ = begun([word for word in words if "=" in word])
    name = names[0]
    rows = [
        row
        for row in Ledger.reading(place.directory / LEDGER).rows
        if name in (row.data.get("candidate"), row.data.get("run"))
        or (row.kind == RowKind.CLAIMED and row.data["task"]["candidate"] == name)
    ]
    if not rows:
        raise UserError(f"{name}: nothing in the ledger has this name")
    for row in rows:
        print(f"{row.number:5d} {row.time} {row.kind}")
        text = json.dumps(row.data, indent=1)
        print("\n".join(f"      {line}" for line in text.splitlines()))
    cli.finish({"rows": len(rows)})


def earlier(words: Sequence[str]) -> None:
    """Put the earlier record's promotions before the gates of a campaign."""
    config, _ = load(words or ["campaign=control_49k"])
    rejected = 0
    for claim in CLAIMS:
        reasons = objections_to(claim, config.gates)
        rejected += bool(reasons)
        print(f"{claim.name}: {claim.about}", *(f"  {reason}" for reason in reasons), sep="\n")
    cli.finish({"claims": len(CLAIMS), "rejected": rejected})
