"""Every command that README.md and docs/ print can be run as it is printed there.

Commands of a few seconds are run, with the short settings of `RUN` after them. Of the others
everything before the work itself is done: training commands compose and check each of their jobs,
scripts build their settings, `make` knows the target. A command that no table knows fails.
"""

import importlib
import io
import re
import runpy
import shlex
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from common import cli
from common.config import CONF_DIR, compose
from common.overrides import check_command_line, sweep
from ppo.config import PPOTrainConfig
from rssm.training_run import WorldModelTrainConfig
from tests.commands import ROOT, TINY

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
DRIVER = ROOT / "experiments" / "checkpoints" / "race.pt"
WORLD = ROOT / "experiments" / "checkpoints" / "P5.pt"

TRAINING = {"train_ppo.py": PPOTrainConfig, "train_world_model.py": WorldModelTrainConfig}

RUN = {
    "python train_ppo.py": TINY,
    "python scripts/evaluate.py checkpoint=<run or file> env=race seeds=0-99": ("seeds=0",),
    "python scripts/watch.py checkpoint=<run or file> track_seed=3": ("quick=true",),
    "python scripts/doctor.py": (),
    "python -m autoresearch status campaign=control_49k": (),
    "python -m autoresearch earlier": (),
}
"""Commands that are run to their end, and the short settings that are added."""

MODULES = {"probes": ("probes.runs", 3), "experiments.ladder": ("experiments.rungs.settings", 2)}
"""Where the settings of `python -m` commands are, and the words before them."""

READERS_OWN = {"reward.pace=0.5", "proposer.transcript=middle.jsonl", "ladder run=2E"}
"""Settings that exist only after the steps that the page explains; tests/docs/test_extend.py takes
them."""

PLACEHOLDERS = {
    "<run or file>": str(DRIVER),
    "<run>": "a",
    "<runs>": "runs/ppo/a",
    "<name>": "a",
    "<CPU index>": "https://example.org",
}


def printed(page: Path) -> list[str]:
    """The commands in a page's code blocks and between backquotes."""
    text = page.read_text(encoding="utf-8")
    blocks = re.findall(r"^```(?!python)\w*\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    lines = [line.split("  #")[0].strip() for block in blocks for line in block.splitlines()]
    prose = re.sub(r"^```\w*\n.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    quoted = [" ".join(code.split()) for code in re.findall(r"`([^`]+)`", prose)]
    start = re.compile(r"(python|torchrun|make) \S")
    return [command for command in [*lines, *quoted] if start.match(command)]


COMMANDS = sorted({command for page in PAGES for command in printed(page)})


def filled(command: str) -> list[str]:
    """The words of a command, with something real for its placeholders."""
    world = "probes" in command or "dream.py" in command
    command = re.sub(
        r"checkpoint=(<file>|\.\.\.)", f"checkpoint={WORLD if world else DRIVER}", command
    )
    command = command.replace("campaign=...", "campaign=control_49k")
    for placeholder, value in PLACEHOLDERS.items():
        command = command.replace(placeholder, value)
    assert not re.search(r"<\w|\.\.\.", command), f"no value for the placeholder of {command}"
    return shlex.split(command)


def run(words: list[str], cwd: Path) -> str:
    """Run `python <words>` in this process and another folder; returns what it printed."""
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.chdir(cwd)
        module = words[0] == "-m"
        patch.setattr(sys, "argv", words[1:] if module else words)
        try:
            if module:
                runpy.run_module(words[1], run_name="__main__")
            else:
                runpy.run_path(str(ROOT / words[0]), run_name="__main__")
            code = 0
        except SystemExit as stop:
            code = stop.code or 0
    assert code == 0, err.getvalue()
    return out.getvalue()


def check_training(script: str, words: list[str]) -> None:
    """All that a training command does before it trains."""
    schema = TRAINING[script]
    name = script.removesuffix(".py")
    line = check_command_line(words, schema, CONF_DIR)
    for overrides in sweep(line.overrides):
        compose(name, schema, overrides)


def check_settings(words: list[str], cwd: Path) -> None:
    """All that a script does before its work: its settings, checked."""
    if words[:2] == ["-m", "autoresearch"]:
        assert "Settings" in run([*words, "--help"], cwd)
        return
    if words[0] == "-m":
        module, skipped = MODULES[words[1]]
        words = words[skipped:]
    else:
        module = words.pop(0).removesuffix(".py").replace("/", ".")
    cli.parse(importlib.import_module(module).Settings, "", words)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_printed_command_works(command, tmp_path):
    if any(own in command for own in READERS_OWN):
        return
    program, *words = filled(command)
    if command in RUN:
        assert run([*words, *RUN[command]], tmp_path)
    elif program == "make":
        target = next(word for word in words if "=" not in word)
        makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), f"no make {target}"
    elif program == "torchrun" or words[0] in TRAINING:
        script = next(word for word in words if word in TRAINING)
        check_training(script, words[words.index(script) + 1 :])
    else:
        check_settings(words, tmp_path)


def test_the_tables_name_only_what_is_printed():
    assert RUN.keys() <= set(COMMANDS)
    assert all(any(own in command for command in COMMANDS) for own in READERS_OWN)
