"""The ladder of experiments: `python -m experiments.ladder run=E1-P5`; see `--help`.

A rung is a configuration (conf/experiment/<rung>.yaml). It names its parent, the one thing it
changes, the expected effect, and the measure that shows the effect. This command trains the rungs
that are missing, judges every rung by the same probes, and writes a record of each with its
verdict.
"""

from __future__ import annotations

from dataclasses import replace

from common import cli
from common.runs import ROOT
from common.seeding import parse_seeds
from experiments.report.kept import RUNGS
from experiments.rungs.keeping import seconds_spent, summary, write_rung_record
from experiments.rungs.needs import check_needs
from experiments.rungs.settings import Settings, configuration, rungs
from experiments.rungs.training import judge, train
from experiments.rungs.verdicts import observed, verdict
from rssm.checkpoint import export
from rssm.config import Observable

DESCRIPTION = f"""
Train rungs of the ladder and judge them: {", ".join(RUNGS)}.

    python -m experiments.ladder run=E1-P5
    python -m experiments.ladder run=E1-P5,2B seeds=1-2 record=true
    python -m experiments.ladder run=P5 scale=record

Some rungs start from the weights of another rung. Train that rung first, or name it in the same
call. Collect the data sets first with scripts/collect_replay.py. When the command is started again
after an interruption, it skips finished rungs and resumes the unfinished one. record=true writes
experiments/records/ladder_<rung>.json, and P5's weights to experiments/checkpoints/P5.pt.
"""

COMMITTED = "P5"
"""The rung whose weights (of its first seed) are committed with its record."""

CLAIMS = {"E3": "E1", "P5": "E3"}
"""Rungs that are also compared with an earlier ancestor, by the SSIM of sharp_turn."""

COLUMNS = (
    "sharp_turn_ssim",
    "sharp_turn_yaw_slope",
    "sharp_turn_forward_slope",
    "gentle_turn_ssim",
    "recovery_ssim",
    "corr_speed@15",
    "corr_progress_delta@15",
)


def main() -> None:
    settings = cli.parse(Settings, DESCRIPTION)
    rows, line, memory = [], {}, {}
    names, seeds = rungs(settings.run), parse_seeds(settings.seeds)
    check_needs(names, seeds, settings)
    for name in names:
        config = configuration(name, settings.scale)
        runs = {seed: train(name, seed, settings) for seed in seeds}
        results = {seed: judge(path, settings, memory) for seed, path in runs.items()}
        outcome = verdict(config.rung, *observed(config.rung, results, settings))
        if settings.record:
            claim = None
            if name in CLAIMS:
                observable = Observable("sharp_turn", "ssim")
                rung = replace(config.rung, parent=CLAIMS[name], observable=observable)
                against = verdict(rung, *observed(rung, results, settings))
                claim = {"against": rung.parent, **against}
            write_rung_record(name, settings, config.rung, runs, results, outcome, claim)
        if settings.record and name == COMMITTED:
            first = runs[min(runs)] / "checkpoints" / "final.pt"
            export(ROOT / "experiments" / "checkpoints" / f"{name}.pt", first)
        numbers = summary(results[min(results)])
        cells = (numbers.get(column, "") for column in COLUMNS)
        rows.append([name, outcome["verdict"] or "", *cells])
        line[f"{name}_verdict"] = outcome["verdict"]
        line[f"{name}_sharp_turn_ssim"] = numbers.get("sharp_turn_ssim")
        line[f"{name}_seconds"] = sum((seconds_spent(runs, results) or {}).values()) or None
    cli.table(["rung", "verdict", *COLUMNS], rows)
    cli.finish(line)


if __name__ == "__main__":
    cli.run_main(main)
