"""What a campaign file (conf/autoresearch/<name>.yaml) says, as checked types.

May import: `common`. Everything in `autoresearch` may import it.
"""

from autoresearch.config.campaign import CampaignConfig
from autoresearch.config.commands import Commands, Reading
from autoresearch.config.gates import Gates, Guard, Measure
from autoresearch.config.limits import Budgets, Final
from autoresearch.config.space import Range
from autoresearch.config.workers import Endpoint, ExecutorConfig, ProposerConfig

__all__ = [
    "Budgets",
    "CampaignConfig",
    "Commands",
    "Endpoint",
    "ExecutorConfig",
    "Final",
    "Gates",
    "Guard",
    "Measure",
    "ProposerConfig",
    "Range",
    "Reading",
]
