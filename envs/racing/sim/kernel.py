"""The one decorator of the engine's compiled functions.

Numba caches machine code per source file and does not see that a function imported from another
file has changed, so an edited engine could run a stale kernel with another memory layout. The cache
directory is therefore named by the content of the whole package: any edit compiles afresh.
"""

from __future__ import annotations

import numba

from envs.racing.sim.cache import KernelCache, candidates, find_directory
from envs.racing.sim.notice import CompileNotice

CACHE_DIRECTORY = find_directory()
"""Where machine code is kept; None if no directory can be written."""


def _remedy() -> str:
    if CACHE_DIRECTORY is not None:
        return ""
    tried = " and ".join(map(str, candidates()))
    return f": {tried} cannot be written; set NUMBA_CACHE_DIR to a directory that can"


_notice = CompileNotice(_remedy())


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
    compiled = numba.njit(nogil=True, inline=inline, _nrt=counted)(function)
    if CACHE_DIRECTORY is not None:
        compiled._cache = KernelCache(function, CACHE_DIRECTORY)
    _notice.watch(compiled)
    return compiled
