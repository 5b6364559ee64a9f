"""Tells the user that kernels are being compiled: it takes half a minute and shows nothing else."""

from __future__ import annotations

import sys
import threading
import time

from numba.core import event

PATIENCE = 1.0
"""Seconds of compiling before the line is printed."""


class CompileNotice(event.Listener):
    """One line on stderr while the watched functions are compiled, counting on a terminal.

    Args:
        remedy: why the next process will compile again and what to do about it; empty if it will
            not.
    """

    def __init__(self, remedy: str = "") -> None:
        self._remedy = remedy
        self._watched: set = set()
        self._depth = 0  # a function is compiled within the one that calls it
        self._count = 0
        self._seconds = 0.0
        self._began = 0.0
        self._printed = False
        self._finished = threading.Event()
        event.register("numba:compile", self)

    def watch(self, function) -> None:
        """Count the compilations of a decorated function."""
        self._watched.add(function)

    def on_start(self, event: event.Event) -> None:
        """Numba begins to compile; it holds its lock, so that one thread at a time comes here."""
        if event.data["dispatcher"] not in self._watched:
            return
        if self._depth == 0:
            self._began = time.monotonic()
            self._finished = threading.Event()
            patience = PATIENCE - self._seconds
            if patience <= 0:
                self._print_once()
            arguments = (self._finished, max(0.0, patience))
            threading.Thread(target=self._report, args=arguments, daemon=True).start()
        self._depth += 1

    def on_end(self, event: event.Event) -> None:
        """Numba has compiled a function, or failed to."""
        if event.data["dispatcher"] not in self._watched:
            return
        self._count += 1
        self._depth -= 1
        if self._depth == 0:
            self._seconds += time.monotonic() - self._began
            self._finished.set()

    def _print_once(self) -> None:
        if not self._printed:
            self._printed = True
            often = "in every process" if self._remedy else "once after each change of its code"
            text = f"racing: compiling the engine, about half a minute, {often}{self._remedy}"
            print(text, file=sys.stderr, flush=True)

    def _report(self, finished: threading.Event, patience: float) -> None:
        if finished.wait(patience):
            return
        self._print_once()
        terminal = sys.stderr.isatty()
        while terminal and not finished.wait(1.0):
            seconds = self._seconds + time.monotonic() - self._began
            total = len(self._watched)
            text = f"racing: {self._count} of about {total} functions compiled, {seconds:.0f} s"
            print(f"\r{text}\r", end="", file=sys.stderr, flush=True)
        if terminal:
            print("\x1b[K", end="", file=sys.stderr, flush=True)
