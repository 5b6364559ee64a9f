"""The one decorator of the engine's compiled functions.

Numba caches machine code per source file and does not see that a function imported from another
file has changed, so an edited engine could run a stale kernel with another memory layout. The cache
directory is therefore named by the content of the whole package: any edit compiles afresh.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path

import numba


def _cache_directory() -> Path:
    digest = hashlib.sha256(numba.__version__.encode())
    package = Path(__file__).parents[1]
    for source in sorted(package.rglob("*.py")):
        digest.update(source.relative_to(package).as_posix().encode() + source.read_bytes())
    base = os.environ.get("NUMBA_CACHE_DIR") or os.environ.get("XDG_CACHE_HOME")
    root = Path(base) if base else Path.home() / ".cache"
    directory = root / "dreamracer" / f"kernels-{digest.hexdigest()[:16]}"
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Cached kernels are executed: nobody else may have put them there.
        if os.access(directory, os.W_OK) and directory.stat().st_uid == os.getuid():
            return directory
    except OSError:
        pass
    return Path(tempfile.mkdtemp(prefix="dreamracer-kernels-"))


CACHE_DIRECTORY = _cache_directory()


def kernel(function=None, /, *, inline: str = "never", counted: bool = True):
    """Compile without the interpreter lock and cache the machine code under CACHE_DIRECTORY.

    Args:
        inline: as Numba's.
        counted: whether the function counts references to arrays. What runs in every tick or frame
            does not: it would count its arguments up and down hundreds of times, by atomic
            instructions (docs/speed.md). Such a function neither makes nor returns arrays, nor
            assigns one slice to another; its caller holds its arguments.
    """
    if function is None:
        return lambda f: kernel(f, inline=inline, counted=counted)
    before = numba.config.CACHE_DIR
    # Numba reads the directory when a function is decorated; other packages keep their own.
    numba.config.CACHE_DIR = str(CACHE_DIRECTORY)
    try:
        return numba.njit(cache=True, nogil=True, inline=inline, _nrt=counted)(function)
    finally:
        numba.config.CACHE_DIR = before
