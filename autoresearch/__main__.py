"""python -m autoresearch; see `--help`."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from rich.console import Console
from rich.live import Live

from autoresearch.config import CampaignConfig
from autoresearch.judge.calibration import (
    LEAST_RUNS,
    best_of_three,
    keep_calibration,
    measure,
    simulate,
)
from autoresearch.judge.earlier import CLAIMS, objections_to
from autoresearch.judge.verify import verify
from autoresearch.loop.campaign import LEDGER, Campaign, recorded_config
from autoresearch.loop.ledger import Ledger
from autoresearch.loop.state import State
from autoresearch.report.display import overview
from autoresearch.report.keep import CAMPAIGNS, keep
from autoresearch.report.summary import Summary, summarize
from common import cli, schema
from common.config import CONF_DIR
from common.errors import ConfigError, UserError
from common.files import to_plain, write_json
from common.keys import unknown_choice

CONFIGURATIONS = CONF_DIR / "autoresearch"

DESCRIPTION = """Propose, run, judge, promote: a research campaign over a training configuration.

    python -m autoresearch run campaign=control_49k       until it ends; again to take it up
    python -m autoresearch status campaign=control_49k    where it is
    python -m autoresearch verify campaign=control_49k    take every decision again

    propose, judge, promote     run one stage of a generation only
    resume                      run, by the settings in the ledger
    final                       the winner against the base on fresh seeds and sealed units, once
    show campaign=... ID        all that is known of a candidate (g001_c02) or a run (run_008)
    calibrate                   measure noise and error rates: runs=24 units=100 campaigns=10000;
                                record=true keeps them for REPORT.md
    keep campaign=... [into=experiments/campaigns]
                                copy ledger and artifacts to the results that are committed
    earlier                     the earlier record's promotions before these gates

campaign names conf/autoresearch/<campaign>.yaml. Any setting of it can follow as name=value:
proposer=random budgets.generations=2 executor=ray executor.jobs=8. `run --help` lists them all.
status, verify, show and keep also take directory=<a campaign's directory> instead."""


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
        print(DESCRIPTION, cli.describe(CampaignConfig), sep="\n\n")
        return
    COMMANDS[command](words)


def load(words: Sequence[str], own: Sequence[str] = ()) -> tuple[CampaignConfig, dict[str, Any]]:
    """The campaign that `campaign=` names, with the other settings applied.

    Returns it and what `own` names, as text. Raises `ConfigError` for what does not fit.
    """
    given, taken = {}, {}
    for word in words:
        name, equals, text = word.partition("=")
        if not equals:
            raise ConfigError(f"'{word}': write name=value")
        # A group that has kinds can be given its kind alone: executor=ray.
        name = f"{name}.kind" if name in ("executor", "proposer") else name
        if name in given or name in taken:
            raise ConfigError(f"{name} is given twice")
        (taken if name in (*own, "campaign") else given)[name] = text
    name = taken.pop("campaign", None)
    if name is None:
        raise ConfigError(f"name a campaign: campaign={'|'.join(campaigns())}")
    if name not in campaigns():
        raise unknown_choice("campaign", name, campaigns())
    path = CONFIGURATIONS / f"{name}.yaml"
    try:
        content = OmegaConf.create({"name": name})
        content = OmegaConf.merge(content, OmegaConf.load(path))
        changes = OmegaConf.from_dotlist([f"{key}={text}" for key, text in given.items()])
        data = OmegaConf.to_container(OmegaConf.merge(content, changes), resolve=True)
    except (yaml.YAMLError, OmegaConfBaseException) as error:
        raise ConfigError(f"{path}: {error}") from None
    return schema.build(CampaignConfig, data), taken


def campaigns() -> list[str]:
    """Names of the campaigns in conf/autoresearch."""
    return sorted(path.stem for path in CONFIGURATIONS.glob("*.yaml"))


def run(words: Sequence[str], stage: str = "all") -> None:
    """Run a campaign, or a stage of a generation."""
    config, _ = load(words)
    _run(config, stage)


def resume(words: Sequence[str]) -> None:
    """Take up a campaign by its own settings; budgets and executor may be given anew."""
    config, _ = load(words)
    began = recorded_config(_directory(config))
    kept = schema.build(
        CampaignConfig,
        to_plain(began)
        | {"budgets": to_plain(config.budgets), "executor": to_plain(config.executor)},
    )
    _run(kept, "all")


def final(words: Sequence[str]) -> None:
    """Measure the winner of a campaign that has ended; `UserError` where none was begun."""
    config, _ = load(words)
    recorded_config(_directory(config))  # opening it would begin one
    _run(config, "final")


def existing(words: Sequence[str], own: Sequence[str] = ()) -> tuple[Path, dict[str, Any]]:
    """The directory of a campaign that has begun, which `directory=` or the settings name, and what
    `own` names, as text."""
    named = [word for word in words if word.startswith("directory=")]
    if not named:
        config, taken = load(words, own)
        return _directory(config), taken
    taken = {}
    for word in words:
        name, _, text = word.partition("=")
        if name not in ("directory", *own) or name in taken:
            raise ConfigError(f"directory= names the campaign; {word} has no place beside it")
        taken[name] = text
    return Path(taken.pop("directory")), taken


def status(words: Sequence[str]) -> None:
    """Print where a campaign is."""
    directory, _ = existing(words)
    summary = summarize(directory)
    Console().print(overview(summary.config, summary.state))
    cli.finish(_numbers(summary))


def check(words: Sequence[str]) -> None:
    """Recompute a campaign."""
    directory, _ = existing(words)
    found = verify(directory)
    cli.finish({**vars(found), "verified": True})


def keep_campaign(words: Sequence[str]) -> None:
    """Copy a campaign to where the report finds it."""
    directory, own = existing(words, ("into",))
    cli.finish({"kept": str(keep(directory, Path(own.get("into") or CAMPAIGNS)))})


def show(words: Sequence[str]) -> None:
    """Print all that is known of one candidate or run."""
    names = [word for word in words if "=" not in word]
    if len(names) != 1:
        raise ConfigError("show takes one name, such as g001_c02 or run_008")
    directory, _ = existing([word for word in words if "=" in word])
    rows = Ledger.reading(directory / LEDGER).rows
    name = names[0]
    told = [row for row in rows if name in (row.data.get("candidate"), row.data.get("run"))]
    told += [
        row
        for row in rows
        if row.kind == "claimed" and row.data["task"]["candidate"] == name and row not in told
    ]
    if not told:
        raise UserError(f"{name}: nothing in the ledger has this name")
    for row in sorted(told, key=lambda row: row.number):
        print(f"{row.number:5d} {row.time} {row.kind}")
        print(_indented(json.dumps(row.data, indent=1)))
    cli.finish({"rows": len(told)})


def calibrate(words: Sequence[str]) -> None:
    """Measure the noise of the base configuration and simulate campaigns with it."""
    config, own = load(words, ("runs", "units", "campaigns", "effects", "out", "record"))
    runs = _number("runs", own.get("runs", LEAST_RUNS), 2, 10_000)
    units = _number("units", own.get("units", 100), 2, 100_000)
    count = _number("campaigns", own.get("campaigns", 10_000), 1, 10**7)
    try:
        effects = [float(x) for x in own.get("effects", "0,0.02,0.05,0.1,0.15,0.2").split(",")]
    except ValueError as error:
        raise ConfigError(f"effects are numbers with commas: {error}") from None
    if not np.isfinite(effects).all():
        raise ConfigError(f"effects are finite, unlike {own['effects']}")
    if own.get("record", "false") not in ("true", "false"):
        raise ConfigError(f"record is true or false, not {own['record']!r}")
    directory = _directory(config).with_name(f"{config.name}_calibration")
    kept = schema.build(CampaignConfig, to_plain(config) | {"name": directory.name})
    with Campaign.opened(kept, print) as campaign:
        noise = measure(campaign, runs, units)
    options = {"generations": config.budgets.generations, "candidates": config.proposer.candidates}
    table = [
        simulate(noise, config.gates, effect=e, campaigns=count, seed=config.seed, **options)
        for e in effects
    ]
    other = [best_of_three(noise, effect=e, trials=count, seed=config.seed) for e in effects]
    means = noise.primary.mean(1)
    found = {
        "runs": runs,
        "units": units,
        "campaigns": count,
        "mean": float(means.mean()),
        "sd_over_seeds": float(means.std(ddof=1)),
        "sd_over_units": float(noise.primary.std(1, ddof=1).mean()),
        "seconds_per_run": noise.seconds,
        "gates": table,
        "best_of_three": other,
        "means": means.tolist(),
    }
    write_json(Path(own["out"]) if "out" in own else directory / "calibration.json", found)
    if own.get("record") == "true":
        keep_calibration(found, config, cli.command("-m autoresearch"))
    cli.table(
        ["effect", "promoted", "screened", "runs", "minutes", "best of three promotes"],
        [
            [f"{row['effect']:g}", row["promoted"]["mean"], row["screened"]["mean"], row["runs"],
             row["minutes"], luck["promoted"]["mean"]]
            for row, luck in zip(table, other, strict=True)
        ],
    )  # fmt: skip
    null = next((row for row in table if row["effect"] == 0), None)
    strongest = max(table, key=lambda row: row["effect"])
    cli.finish(
        {
            "sd_over_seeds": found["sd_over_seeds"],
            "best_of_three": other[effects.index(0)]["promoted"]["mean"] if null else None,
            "false_promotion": null["promoted"]["mean"] if null else None,
            "power": strongest["promoted"]["mean"],
        }
    )


def earlier(words: Sequence[str]) -> None:
    """Put the earlier record's promotions before the gates of a campaign."""
    config, _ = load(words or ["campaign=control_49k"])
    rejected = 0
    for claim in CLAIMS:
        reasons = objections_to(claim, config.gates)
        rejected += bool(reasons)
        print(f"{claim.name}: {claim.about}", *(f"  {reason}" for reason in reasons), sep="\n")
    cli.finish({"claims": len(CLAIMS), "rejected": rejected})


COMMANDS: dict[str, Callable[[Sequence[str]], None]] = {
    "run": run,
    "propose": lambda words: run(words, "propose"),
    "judge": lambda words: run(words, "judge"),
    "promote": lambda words: run(words, "promote"),
    "final": final,
    "resume": resume,
    "status": status,
    "verify": check,
    "show": show,
    "keep": keep_campaign,
    "calibrate": calibrate,
    "earlier": earlier,
}


def _run(config: CampaignConfig, stage: str) -> None:
    console = Console()
    with Live(console=console, auto_refresh=False, transient=True) as live:

        def watch(state: State) -> None:
            if console.is_terminal:
                live.update(overview(config, state), refresh=True)

        def say(text: str) -> None:
            console.print(text, markup=False, highlight=False, soft_wrap=True)

        with Campaign.opened(config, say, watch) as campaign:
            reason = campaign.run(stage)
    summary = summarize(_directory(config))
    console.print(overview(config, summary.state))
    cli.finish(_numbers(summary) | {"stopped": reason})


def _numbers(summary: Summary) -> dict[str, Any]:
    state, cost = summary.state, summary.cost
    promoted = [c.id for c in state.candidates.values() if c.promoted]
    return {
        "generations": len(state.generations),
        "candidates": len(state.candidates),
        "promoted": ",".join(promoted) or "none",
        "runs": len(state.runs),
        "ticks": state.ticks,
        "seconds": state.seconds,
        "candidates_per_hour": cost.candidates_per_hour,
        "outside_training": cost.outside_training,
    }


def _directory(config: CampaignConfig) -> Path:
    return Path(config.root) / config.name


def _number(name: str, text: Any, low: int, high: int) -> int:
    try:
        value = int(text)
    except ValueError:
        raise ConfigError(f"{name}: {text!r} is not a whole number") from None
    if not low <= value <= high:
        raise ConfigError(f"{name} is {low} to {high}, not {value}")
    return value


def _indented(text: str) -> str:
    return "\n".join(f"      {line}" for line in text.splitlines())


def listen() -> None:
    """Leave by an exception when told to end, so that what runs is ended on the way out."""

    def leave(number: int, frame: object) -> None:
        sys.exit(128 + number)

    for each in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, leave)


if __name__ == "__main__":
    listen()
    cli.run_main(main)
