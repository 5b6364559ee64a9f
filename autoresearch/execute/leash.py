"""python -m autoresearch.execute.leash <parent> <grace> <command ...>: a command that ends when its
parent does.

A worker that is killed cannot end the command that it started. This process stands between the two.
It exits with the command's exit status; if the parent is gone first, it ends the whole process
group.
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
    """The words that run `command` until this process ends; start them in a new session."""
    leash = [sys.executable, "-m", "autoresearch.execute.leash", str(os.getpid()), str(grace)]
    return [*leash, *command]


def main(arguments: Sequence[str]) -> int:
    """Run the command; returns its exit status, negative for a signal."""
    parent, grace = int(arguments[0]), float(arguments[1])
    # A TERM to the group is for the command, which may use the grace period; this process has to
    # stay until the command ends. A handler, unlike SIG_IGN, is not inherited by the command.
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
