"""The proposer that a campaign names, by its kind."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from autoresearch.config import CampaignConfig
from autoresearch.propose.brief import Proposer
from autoresearch.propose.chance import RandomProposer
from autoresearch.propose.coach import RuleProposer
from autoresearch.propose.llm import LanguageModelProposer
from autoresearch.propose.rules import load_rules
from autoresearch.propose.tpe import TpeProposer
from autoresearch.propose.transcript import TranscriptProposer

KINDS: dict[str, Callable[[CampaignConfig], Proposer]] = {
    "random": RandomProposer,
    "rules": lambda config: RuleProposer(config, load_rules(config.proposer.rules)),
    "tpe": TpeProposer,
    "llm": LanguageModelProposer,
    "transcript": lambda config: TranscriptProposer(Path(config.proposer.transcript)),
}
"""Kind (`proposer.kind`) to what makes a proposer of it."""


def make_proposer(config: CampaignConfig) -> Proposer:
    """The proposer that a campaign names; `UserError` where it cannot work."""
    return KINDS[config.proposer.kind](config)
