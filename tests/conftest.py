"""One thread per library, so that tests neither fight over cores nor depend on their number.

The variables are read when a library is first imported, which is after this file.
"""

import os

for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[_name] = "1"
os.environ["SDL_VIDEODRIVER"] = "dummy"
os.environ["WANDB_MODE"] = "offline"
os.environ["MPLBACKEND"] = "agg"

import torch  # noqa: E402
from hypothesis import settings  # noqa: E402

torch.set_num_threads(1)

# The first example compiles or imports something, which is not a property's fault.
settings.register_profile("default", deadline=None, print_blob=True)
settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "default")
