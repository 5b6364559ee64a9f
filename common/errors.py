"""Errors meant for the person at the keyboard, as opposed to bugs in this program."""

import errno
import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager

# The machine refused, not the code: the path and the reason are enough, without a traceback.
_MACHINE_ERRNOS = {
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EFBIG,
    errno.EACCES,
    errno.EPERM,
    errno.EROFS,
}

EXIT_USER_ERROR = 2
EXIT_INTERRUPTED = 130


class UserError(Exception):
    """Bad input or a bad environment: the message says what is wrong, where, and what to do.

    Entry points print it as one `error: ...` message and exit with code 2, without a traceback.
    """


class ConfigError(UserError):
    """A configuration value, key or path cannot be used."""


@contextmanager
def reported() -> Iterator[None]:
    """Print errors for people as `error: ...` on stderr and exit with the right code.

    `UserError`, and an `OSError` that the machine causes (disk full, no permission, read-only
    file system), exit with 2; Ctrl-C exits with 130. Everything else is a bug and keeps its
    traceback.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(
                errors="backslashreplace"
            )  # an ASCII locale cannot print all letters
    try:
        yield
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(EXIT_USER_ERROR)
    except BrokenPipeError:  # the reader of the output has stopped, for example `head`
        sys.stdout = None
        sys.exit(EXIT_INTERRUPTED)
    except OSError as error:
        if error.errno not in _MACHINE_ERRNOS:
            raise
        where = f": {error.filename}" if error.filename else ""
        print(f"error: {error.strerror}{where}", file=sys.stderr)
        sys.exit(EXIT_USER_ERROR)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(EXIT_INTERRUPTED)
