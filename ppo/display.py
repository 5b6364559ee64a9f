"""What a person sees while training: a live bar on a terminal, a line now and then elsewhere."""

import time
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

SECONDS_PER_LINE = 15.0


class Display:
    """Shows rows of metrics. `total` is the budget in ticks, `enabled` false for other ranks."""

    def __init__(self, total: int, live: bool, enabled: bool = True) -> None:
        self.total, self.enabled = total, enabled
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
        self._task = self._progress.add_task("collecting", total=total)

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
        now, ticks = time.monotonic(), row["ticks"]
        if self._started is None:
            self._started = (now, ticks)
        text = summary(row, self._time_left(now, ticks))
        self._progress.update(self._task, completed=min(ticks, self.total), description=text)
        if not self.live and now - self._last_line >= SECONDS_PER_LINE:
            self._last_line = now
            self.say(f"{100 * ticks / self.total:3.0f}% {text}")

    def _time_left(self, now: float, ticks: int) -> float | None:
        started, first = self._started
        if ticks <= first:
            return None
        return max(self.total - ticks, 0) * (now - started) / (ticks - first)


def summary(row: Mapping[str, Any], seconds_left: float | None) -> str:
    """One line of the numbers that tell how training goes."""
    parts = [
        f"{row['ticks_per_second']:,.0f} ticks/s",
        f"{row['decisions_per_second']:,.0f} decisions/s",
        f"{timedelta(seconds=round(seconds_left))} left" if seconds_left is not None else "",
    ]
    for label, key, form in (
        ("return", "episode/native_return", ".1f"),
        ("progress", "episode/progress", ".3f"),
        ("off-track", "episode/off_track_rate", ".3f"),
        ("entropy", "ppo/entropy", ".2f"),
    ):
        value = row.get(key)
        parts.append("" if value is None else f"{label} {value:{form}}")
    return "  ".join(filter(None, parts))
