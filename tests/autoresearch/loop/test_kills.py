"""A campaign that is killed, at any point, comes to the same decisions."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time

import pytest

from autoresearch.execute.processes import processes_of
from autoresearch.loop.campaign import Campaign
from autoresearch.loop.ledger import LEDGER, Ledger
from autoresearch.loop.state import State
from autoresearch.loop.verify import verify
from autoresearch.types.run import Failure
from common.files import to_plain
from common.runs import ROOT
from tests.autoresearch import toys
from tests.autoresearch.toys import QUICK, decisions, ledger_of


@pytest.mark.slow
@pytest.mark.parametrize("before", [False, True])
def test_killed_at_every_transition_it_comes_to_the_same_decisions(tmp_path, before):
    """Each life writes a few rows and dies: with the last one on the disk, or with all done
    that the next one would have written down."""
    proposer = toys.transcript(tmp_path / "t.jsonl", {"skill": 0.7}, {"crash": 3})
    config = toys.config(
        tmp_path, gates=QUICK, proposer=proposer, executor={"jobs": 2, "attempts": 100},
        budgets={"generations": 1, "grace": 0.2},
    )  # fmt: skip
    whole = dataclasses.replace(config, name="whole")
    toys.run(whole)
    lives = 0
    while not _lived_to_the_end(config, 2 + lives % 5, before):
        time.sleep(0.2)  # what it started may come to its end
        lives += 1
        assert lives < 150
    rows = ledger_of(config)
    assert decisions(rows) == decisions(ledger_of(whole))
    # A life that died after the end leaves nothing to take up.
    assert lives > 10 and sum(row.kind == "resumed" for row in rows) in (lives - 1, lives)
    verify(tmp_path / "toy")


def _lived_to_the_end(config, rows, before):
    """Run a campaign in a process that dies when it has written `rows` rows (or, with `before`, is
    about to write the next one); whether it ended first."""
    child = os.fork()
    if not child:
        append, written = Ledger.append, 0

        def fatal(ledger, kind, data):
            nonlocal written
            if before and written == rows:
                os.kill(os.getpid(), signal.SIGKILL)
            row = append(ledger, kind, data)
            written += 1
            if not before and written == rows:
                os.kill(os.getpid(), signal.SIGKILL)
            return row

        Ledger.append = fatal
        code = 1
        try:
            toys.run(config)
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    assert status in (0, signal.SIGKILL)
    return status == 0


def killed_when_something_runs(config, times=1):
    """A campaign, killed with -9 as soon as its ledger tells of `times` running processes."""
    child = os.fork()
    if not child:
        try:
            toys.run(config)
        finally:
            os._exit(0)
    ledger = toys.Path(config.root) / config.name / LEDGER
    while not (ledger.is_file() and ledger.read_bytes().count(b'"running"') >= times):
        time.sleep(0.02)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def test_a_process_that_outlives_its_campaign_is_ended_and_its_run_taken_up(tmp_path):
    config = toys.config(
        tmp_path, gates=QUICK, budgets={"generations": 1, "grace": 0.2},
        commands={"train": [*toys.COMMANDS["train"], "sleep=1.5"]},
        proposer=toys.transcript(tmp_path / "t.jsonl", {"skill": 0.7}),
    )  # fmt: skip
    killed_when_something_runs(config)
    ledger = tmp_path / "toy" / LEDGER
    run = next(iter(State.of(Ledger.reading(ledger).rows).runs.values()))
    assert processes_of(run.last.token)
    with Campaign.opened(config, lambda text: None) as campaign:
        assert processes_of(run.last.token) == []
        interrupted = campaign.state.run(run.id)
        assert [a.failure for a in interrupted.attempts] == [Failure.INTERRUPTED]
        assert campaign.run() == "all generations are done"
        assert len(campaign.state.run(run.id).attempts) == 2


def test_a_campaign_may_be_interrupted_more_often_than_a_run_may_be_lost(tmp_path):
    """Its own death is nobody's failure."""
    config = toys.config(
        tmp_path, gates=QUICK, budgets={"generations": 1, "grace": 0.2}, executor={"attempts": 1},
        commands={"train": [*toys.COMMANDS["train"], "sleep=0.5"]},
        proposer=toys.transcript(tmp_path / "t.jsonl", {"skill": 0.7}),
    )  # fmt: skip
    for times in range(1, 4):
        killed_when_something_runs(config, times)
    reason, state = toys.run(config)
    assert reason == "all generations are done" and state.candidates["g001_c01"].promoted
    first = next(iter(state.runs.values()))
    assert [a.failure for a in first.attempts] == [*3 * [Failure.INTERRUPTED], None]
    assert all(0 <= a.seconds < 30 for a in first.attempts) and state.seconds > 0
    verify(tmp_path / "toy")


def test_term_ends_a_campaign_and_all_that_it_runs(tmp_path):
    content = {key: value for key, value in to_plain(toys.config(tmp_path)).items() if value}
    content["commands"]["train"] += ["sleep=30"]
    content = json.loads(json.dumps(content))
    script = (
        "import json, sys\n"
        "from autoresearch.__main__ import listen\n"
        "from autoresearch.commands.running import run_campaign\n"
        "from autoresearch.config import CampaignConfig\n"
        "from common import cli, schema\n"
        "config = schema.build(CampaignConfig, json.loads(sys.argv[1]))\n"
        "listen()\n"
        "cli.run_main(lambda: run_campaign(config, 'all'))\n"
    )
    command = [sys.executable, "-c", script, json.dumps(content)]
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, cwd=ROOT)
    ledger = tmp_path / "toy" / LEDGER
    while not (ledger.is_file() and b'"running"' in ledger.read_bytes()):
        assert child.poll() is None
        time.sleep(0.02)
    run = next(iter(State.of(Ledger.reading(ledger).rows).runs.values()))
    assert processes_of(run.last.token)
    child.send_signal(signal.SIGTERM)
    assert child.wait(20) == 128 + signal.SIGTERM
    assert processes_of(run.last.token) == []
