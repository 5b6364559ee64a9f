"""Code that every room shares: atomic files, run directories with manifests, seeds, statistics,
configuration from Hydra or the command line, and errors written for people.

`common` imports no other room. Only `common.torch` and `common.rl` import torch at module level, so
worlds and tools start fast and run where torch is not installed. Import the modules by name, for
example `from common.runs import Run`.
"""

import dreamracer  # noqa: F401  refuses foreign packages of the same names
