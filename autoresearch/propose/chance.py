"""Random search: the baseline for all other proposers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from autoresearch.config import CampaignConfig, Range
from autoresearch.propose.brief import Brief
from autoresearch.types.overrides import rounded
from autoresearch.types.proposal import Proposal
from common.seeding import derive


class RandomProposer:
    """Changes one to `proposer.keys` settings to values drawn from their ranges."""

    def __init__(self, config: CampaignConfig) -> None:
        self.config = config

    def propose(self, brief: Brief) -> Proposal:
        seed = derive(self.config.seed, "random proposer", brief.generation, brief.ask)
        rng = np.random.default_rng(seed)
        keys = sorted(self.config.space)
        count = int(rng.integers(1, min(self.config.proposer.keys, len(keys)) + 1))
        chosen = [keys[i] for i in rng.choice(len(keys), count, replace=False)]
        change = {key: drawn(self.config.space[key], rng) for key in chosen}
        primary = self.config.gates.primary
        hypothesis = "Drawn at random: no reason but the range."
        return Proposal(rounded(change), hypothesis, primary.name, primary.sign, "random")


def drawn(span: Range, rng: np.random.Generator) -> Any:
    """A value of a range, drawn at random."""
    if span.choices:
        return span.choices[int(rng.integers(len(span.choices)))]
    if span.log:
        value = math.exp(rng.uniform(math.log(span.low), math.log(span.high)))
    else:
        value = float(rng.uniform(span.low, span.high))
    if span.integer:
        return int(min(max(round(value), math.ceil(span.low)), math.floor(span.high)))
    return min(max(value, span.low), span.high)
