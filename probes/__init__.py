"""Probes: what a world model imagines, judged on clips that geometry chose.

`python -m probes <probe> checkpoint=...` imagines the horizon of every clip from its context, open
loop by the prior, and compares pictures, camera motion and telemetry with what happened, beside
baselines that know no world.
"""

import dreamracer  # noqa: F401  refuses foreign packages of the same names
from probes.bundle import ProbeConfig, Result, run_probe
from probes.clips import RULES

__all__ = ["RULES", "ProbeConfig", "Result", "run_probe"]
