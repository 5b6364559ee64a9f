"""Experiments as data, and what turns finished runs into results.

Averages over training seeds, the ablation study's variants, model cards, figures, our trainer under
a stopwatch and the published numbers to compare with. `records/` holds the committed results and
`checkpoints/` the committed drivers. Import the modules by name, for example
`from experiments.training.finished import FinishedRun`.
"""

import dreamracer  # noqa: F401  refuses foreign packages of the same names
