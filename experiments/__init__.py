"""Experiments described as data, and the code that turns finished runs into results.

It averages over training seeds, defines the ablation study, writes model cards and figures, times
the trainer, and holds the published numbers to compare with. `records/` holds the committed results
and `checkpoints/` the committed models. Import the modules by name, for example
`from experiments.training.finished import FinishedRun`.
"""

import dreamracer  # noqa: F401  refuses foreign packages of the same names
