"""Something is shown while runs take long."""

import io

from rich.console import Console

from autoresearch.commands import progress as module
from autoresearch.commands.progress import progress
from autoresearch.loop.campaign import Campaign, Stage
from tests.autoresearch import toys


def run(tmp_path, console):
    """Train and judge a base that takes a second."""
    train = [*toys.COMMANDS["train"], "sleep=1"]
    config = toys.config(
        tmp_path, commands={"train": train}, proposer=toys.transcript(tmp_path / "t.jsonl", {})
    )
    with (
        progress(config, console) as shown,
        Campaign.opened(config, shown.say, shown.watch) as campaign,
    ):
        campaign.run(Stage.PROPOSE)
    return console.file.getvalue()


def test_a_line_where_there_is_no_terminal(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "FIRST_LINE_SECONDS", 0.2)
    text = run(tmp_path, Console(file=io.StringIO(), width=200))
    assert "now: run_001 train base (" in text


def test_short_runs_print_none(tmp_path):
    assert "now:" not in run(tmp_path, Console(file=io.StringIO(), width=200))


def test_a_table_that_is_kept_up_to_date_in_a_terminal(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "REFRESH_SECONDS", 0.1)
    text = run(tmp_path, Console(file=io.StringIO(), width=200, force_terminal=True))
    assert text.count("now: run_001 train base (") > 2
