"""Shows that a campaign is at work: a live table in a terminal, now and then a line elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.live import Live

from autoresearch.config import CampaignConfig
from autoresearch.loop.state import State
from autoresearch.report.display import overview, running_lines

REFRESH_SECONDS = 1.0
FIRST_LINE_SECONDS, LINE_SECONDS = 5.0, 60.0
"""Where there is no terminal: a line once new runs have taken so long, then every so often."""


class Progress:
    """What a campaign's `say` and `watch` print to.

    Args:
        config: of the campaign.
        console: where to.
        live: the table, in a terminal.
    """

    def __init__(self, config: CampaignConfig, console: Console, live: Live) -> None:
        self.config, self.console, self.live = config, console, live
        self._open: tuple[str, ...] = ()
        self._due = self._refreshed = 0.0

    def say(self, text: str) -> None:
        """Print a line."""
        self.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def watch(self, state: State) -> None:
        """Show the state; cheap enough to be called many times a second."""
        now = time.monotonic()
        if self.console.is_terminal:
            if now - self._refreshed >= REFRESH_SECONDS:
                self._refreshed = now
                self.live.update(overview(self.config, state), refresh=True)
            return
        open_runs = tuple(run.last.token for run in state.runs.values() if run.open)
        if open_runs != self._open:
            self._open, self._due = open_runs, now + FIRST_LINE_SECONDS
        elif open_runs and now >= self._due:
            self._due = now + LINE_SECONDS
            for line in running_lines(state):
                self.say(line)


@contextmanager
def progress(config: CampaignConfig, console: Console) -> Iterator[Progress]:
    """The progress of a campaign on `console` while the body runs."""
    with Live(console=console, auto_refresh=False, transient=True) as live:
        yield Progress(config, console, live)
