"""python -m autoresearch; see `--help`."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Sequence

from autoresearch.commands import looking, running
from autoresearch.commands.calibrating import calibrate
from autoresearch.commands.settings import load
from autoresearch.config import CampaignConfig
from autoresearch.loop.campaign import Stage
from common import cli
from common.files import to_plain
from common.help import describe
from common.keys import unknown_choice

DESCRIPTION = """Propose, run, judge, promote: a research campaign over a training configuration.

    python -m autoresearch run campaign=control_49k       until it ends; run it again to go on
    python -m autoresearch status campaign=control_49k    where it is
    python -m autoresearch verify campaign=control_49k    make every decision again

    propose, judge, promote     run one stage of a generation only
    resume                      go on by the settings in the ledger
    final                       the winner against the base on fresh seeds and sealed units, once
    show campaign=... ID        everything about a candidate (g001_c02) or a run (run_008)
    calibrate                   measure noise and error rates: runs=24 units=100 campaigns=10000;
                                record=true keeps them for REPORT.md
    keep campaign=... [into=experiments/campaigns]
                                copy ledger and artifacts to the committed results
    earlier                     put the earlier record's promotions before these gates

campaign names conf/autoresearch/<campaign>.yaml. Any of its settings can follow as name=value:
proposer=random budgets.generations=2 executor=ray executor.jobs=8. `run --help` lists them all;
`run campaign=... --help` with the values of that campaign.
status, verify, final, show and keep look for the campaign in runs/autoresearch, then among the
committed ones in experiments/campaigns; directory=<a campaign's directory> names any other. The
words are explained in docs/glossary.md."""

COMMANDS: dict[str, Callable[[Sequence[str]], None]] = {
    "run": running.run,
    "propose": lambda words: running.run(words, Stage.PROPOSE),
    "judge": lambda words: running.run(words, Stage.JUDGE),
    "promote": lambda words: running.run(words, Stage.PROMOTE),
    "final": running.final,
    "resume": running.resume,
    "status": looking.status,
    "verify": looking.verify,
    "show": looking.show,
    "keep": looking.keep,
    "calibrate": calibrate,
    "earlier": looking.earlier,
}


def main(argv: Sequence[str] | None = None) -> None:
    """Do what the first argument says."""
    words = list(sys.argv[1:] if argv is None else argv)
    command = words.pop(0) if words else "--help"
    if command in ("--help", "-h"):
        print(DESCRIPTION)
        return
    if command not in COMMANDS:
        raise unknown_choice("command", command, list(COMMANDS))
    if {"--help", "-h"} & set(words):
        named = [word for word in words if word.startswith("campaign=")]
        print(DESCRIPTION, _settings(named), sep="\n\n")
        return
    COMMANDS[command](words)


def _settings(words: Sequence[str]) -> str:
    """Help on every setting, with the values of the campaign that `words` name, if any."""
    if not words:
        return describe(CampaignConfig)
    config, _ = load(words)
    space = {key: str(span) for key, span in config.space.items()}
    return describe(CampaignConfig, to_plain(config) | {"space": space})


def listen() -> None:
    """Let TERM and HUP raise SystemExit, so that running processes are ended on the way out."""

    def leave(number: int, frame: object) -> None:
        sys.exit(128 + number)

    for each in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, leave)


if __name__ == "__main__":
    listen()
    cli.run_main(main)
