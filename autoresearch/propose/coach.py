"""Proposes what rules say: first answers to the failures that the parent shows, then tuning."""

from __future__ import annotations

from collections.abc import Sequence

from autoresearch.config import CampaignConfig
from autoresearch.propose.brief import Brief, Exhausted
from autoresearch.propose.rules import Rule
from autoresearch.types.overrides import rounded
from autoresearch.types.proposal import Proposal


class RuleProposer:
    """One change at a time, each a rule's.

    Args:
        config: of the campaign.
        rules: in the order in which they are tried; see `rules.load_rules`.
    """

    def __init__(self, config: CampaignConfig, rules: Sequence[Rule]) -> None:
        self.config, self.rules = config, rules

    def propose(self, brief: Brief) -> Proposal:
        answering = [rule for rule in self.rules if rule.when and rule.when.holds(brief.measures)]
        tuning = [rule for rule in self.rules if rule.when is None]
        for strength in (1, 2, 3):
            for rule in (*answering, *tuning):
                if proposal := self._proposal(rule, strength, brief):
                    return proposal
        raise Exhausted("rules: every rule that applies has been tried")

    def _proposal(self, rule: Rule, strength: int, brief: Brief) -> Proposal | None:
        """A rule's change, if its key is searched and the change is new."""
        span = self.config.space.get(rule.key)
        value = rule.moved(brief.value(rule.key), span, strength) if span else None
        if value is None:
            return None
        change = rounded({rule.key: value})
        if span.accepts(change[rule.key]) is not None or not brief.is_new(change):
            return None
        primary = self.config.gates.primary
        observable, sign = rule.observable, rule.sign
        if observable not in (self.config.metrics or (primary.name,)):
            observable, sign = primary.name, primary.sign
        return Proposal(change, rule.hypothesis, observable, sign, f"rule {rule.name}")
