"""G0: may a proposal be tried?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autoresearch.config import CampaignConfig
from autoresearch.types.overrides import combined, digest
from autoresearch.types.proposal import Proposal


def objections(
    proposal: Proposal,
    config: CampaignConfig,
    parent: Mapping[str, Any],
    base: Mapping[str, Any],
    tried: Mapping[str, str],
) -> list[str]:
    """Every reason against trying a proposal; empty if there is none.

    Args:
        proposal: a change of the parent's configuration.
        config: of the campaign.
        parent: the parent's overrides.
        base: the base's whole configuration, dotted key to value.
        tried: digest of overrides to the candidate that already has them.
    """
    reasons = []
    if not proposal.change:
        reasons.append("it changes nothing")
    for key, value in proposal.change.items():
        if key not in config.space:
            reasons.append(f"{key} may not be searched")
        elif why := config.space[key].accepts(value):
            reasons.append(f"{key}: {why}")
        elif key not in base:
            reasons.append(f"{key} is no setting of the base configuration")
    if proposal.observable not in (config.metrics or (config.gates.primary.name,)):
        reasons.append(f"{proposal.observable} is no measure of this campaign")
    if proposal.sign not in (1, -1):
        reasons.append(f"sign is 1 or -1, not {proposal.sign}")
    if not reasons:
        overrides = combined(parent, proposal.change, base)
        if overrides == combined(parent, {}, base):
            reasons.append("it changes nothing: the parent has these values already")
        elif other := tried.get(digest(overrides)):
            reasons.append(f"it is the same configuration as {other}")
    return reasons
