"""Research without luck: proposes changes of a configuration, runs them, promotes what is better.

A campaign (conf/autoresearch/*.yaml) names a training command, the settings that may be searched,
budgets and gates. `python -m autoresearch run` proposes, runs and judges, generation by generation.
It writes everything that happens into an append-only ledger, from which every decision can be made
again. It runs commands as processes and reads the files that they leave; it imports no trainer.
"""

import dreamracer  # noqa: F401  refuses foreign packages of the same names
