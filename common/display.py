"""The display during training: a live bar on a terminal, otherwise a line now and then."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)

SECONDS_PER_LINE = 15.0
SECONDS_TO_FIRST_LINE = 5.0


class Display:
    """Shows rows of metrics.

    Args:
        total: the budget.
        counter: the key of a row that says how much of the budget is spent.
        summary: makes one line from a row and the time left, which is text.
        live: whether to draw a bar if there is a terminal.
        enabled: False prints nothing; for processes other than the first.
    """

    def __init__(
        self,
        total: int,
        counter: str,
        summary: Callable[[Mapping[str, Any], str], str],
        live: bool,
        enabled: bool = True,
    ) -> None:
        self.total, self.counter, self.summary = total, counter, summary
        self.enabled = enabled
        self.console = Console()
        self.live = live and enabled and self.console.is_terminal
        self._started: tuple[float, int] | None = None
        self._last_line = 0.0
        self._progress = Progress(
            BarColumn(bar_width=20),
            TaskProgressColumn(),
            TextColumn("{task.description}"),
            console=self.console,
            disable=not self.live,
            transient=False,
        )
        self._task = self._progress.add_task("starting", total=total)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def say(self, text: str) -> None:
        """Print a line above the bar."""
        if self.enabled:
            self.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def show(self, row: Mapping[str, Any]) -> None:
        """Show the newest row."""
        if not self.enabled:
            return
        now, spent = time.monotonic(), row[self.counter]
        if self._started is None:
            self._started = (now, spent)
        text = self.summary(row, self._time_left(now, spent))
        self._progress.update(self._task, completed=min(spent, self.total), description=text)
        if not self.live and now - self._last_line >= SECONDS_PER_LINE:
            self._last_line = now
            self.say(f"{100 * min(spent / self.total, 1):3.0f}% {text}")

    def _time_left(self, now: float, spent: int) -> str:
        started, first = self._started
        if spent <= first:
            return ""
        seconds = max(self.total - spent, 0) * (now - started) / (spent - first)
        return f"{timedelta(seconds=round(seconds))} left"


@contextmanager
def progress_bar(title: str) -> Iterator[Callable[[int, int], None]]:
    """Yield `progress(done, total)`, which shows how much of a long task is done.

    On a terminal it is a bar that disappears at the end. Elsewhere it is a line after
    SECONDS_TO_FIRST_LINE and then one every SECONDS_PER_LINE, so short tasks print nothing.
    """
    console = Console()
    started = time.monotonic()
    next_line = started + SECONDS_TO_FIRST_LINE
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn())
    bar = Progress(
        *columns, TimeRemainingColumn(), console=console, transient=True,
        disable=not console.is_terminal,
    )  # fmt: skip
    task = bar.add_task(title, total=None)

    def progress(done: int, total: int) -> None:
        nonlocal next_line
        bar.update(task, completed=done, total=total)
        now = time.monotonic()
        if not console.is_terminal and now >= next_line and done < total:
            next_line = now + SECONDS_PER_LINE
            text = f"{title}: {100 * done / total:.0f}%"
            if done > 0.02 * total:  # an earlier estimate would mostly measure the start-up
                left = timedelta(seconds=round((total - done) * (now - started) / done))
                text += f", {left} left"
            console.print(text, markup=False, highlight=False)

    with bar:
        yield progress
