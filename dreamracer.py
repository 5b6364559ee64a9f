"""Guards the packages of this project against others of the same name.

The project is used from a clone (`make setup`), and its packages are called `common`, `envs`, ...
at the top level. A file of yours with such a name, beside the script that you run, would be
imported in its place and fail somewhere deep inside. Every package imports this module first, so
the import stops here instead, and says which file to rename.
"""

import sys
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parent
"""The clone."""

PACKAGES = ("common", "envs", "ppo", "replay", "rssm", "probes", "experiments", "autoresearch")
"""The top-level packages, one per room."""


def check_packages() -> None:
    """Raise `ImportError` where another module hides a package of this clone."""
    if sys.platform == "win32":
        raise ImportError(
            "dreamracer runs on Linux and macOS. On Windows, use WSL 2: see docs/platforms.md"
        )
    for name in PACKAGES:
        spec = find_spec(name)
        place = Path(spec.origin) if spec is not None and spec.origin else None
        if place is None or place.resolve() != ROOT / name / "__init__.py":
            raise ImportError(
                f"{place or 'nothing'} is imported as `{name}` in place of dreamracer's package "
                f"{ROOT / name}: rename that file, or start Python in another folder"
            )


check_packages()
