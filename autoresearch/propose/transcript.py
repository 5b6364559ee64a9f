"""Proposals from a file: those of another campaign, or of a model that was asked before."""

from __future__ import annotations

import json
from pathlib import Path

from autoresearch.propose.brief import Brief, Exhausted
from autoresearch.types.proposal import Proposal
from common.errors import UserError


class TranscriptProposer:
    """The proposals of a JSON-lines file, in order.

    Args:
        path: of the file; a line is {"change", "hypothesis", "observable", "sign"}.
    """

    def __init__(self, path: Path) -> None:
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f"proposer.transcript={path}: {error}") from None
        self.path, self.lines = path, [line for line in text.split("\n") if line.strip()]

    def propose(self, brief: Brief) -> Proposal:
        if brief.total >= len(self.lines):
            raise Exhausted(f"transcript: {self.path} is at its end")
        try:
            content = json.loads(self.lines[brief.total])
        except (ValueError, RecursionError) as error:
            raise UserError(f"transcript: proposal {brief.total + 1} is no JSON: {error}") from None
        return Proposal.parse(content, "transcript")
