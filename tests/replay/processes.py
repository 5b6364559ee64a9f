"""Children that share the parent's imports, so that dozens of them can be killed in a test."""

import os
import traceback
from collections.abc import Callable


def forked(task: Callable[[], object]) -> int:
    """The process number of a forked child that runs `task`."""
    child = os.fork()
    if child == 0:
        try:
            task()
            os._exit(0)
        except SystemExit as end:
            os._exit(end.code)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    return child


def exit_code(child: int) -> int:
    """How a child ended: its exit code, or minus its signal."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
