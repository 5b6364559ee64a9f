"""python -m autoresearch.execute.leash <parent> <grace> <command ...>: it ends with its parent.

A worker that is killed cannot end what it started. This process stands between the two: it leaves
with the command's own exit status, or, once its parent is gone, ends its whole process group.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence

POLL_SECONDS = 0.1


def leashed(command: Sequence[str], grace: float) -> list[str]:
    """`command` on a leash that this process holds; start it as the leader of a new session."""
    leash = [sys.executable, "-m", "autoresearch.execute.leash", str(os.getpid()), str(grace)]
    return [*leash, *command]


def main(arguments: Sequence[str]) -> int:
    """Run the command; returns its exit status, negative for a signal."""
    parent, grace = int(arguments[0]), float(arguments[1])
    # TERM is for the command, which may need the grace that follows: whoever sends it to the group
    # waits for this process. A handler, unlike an ignored signal, is not passed on to the command.
    signal.signal(signal.SIGTERM, lambda number, frame: None)
    child = subprocess.Popen(arguments[2:])
    while (code := child.poll()) is None:
        if os.getppid() != parent:
            os.killpg(0, signal.SIGTERM)
            time.sleep(grace)
            os.killpg(0, signal.SIGKILL)
        time.sleep(POLL_SECONDS)
    return code


if __name__ == "__main__":
    status = main(sys.argv[1:])
    if status < 0:
        if -status == signal.SIGTERM:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    sys.exit(status)
