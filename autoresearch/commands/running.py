"""Commands that run a campaign: run, propose, judge, promote, resume, final."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from autoresearch.commands.progress import progress
from autoresearch.commands.settings import Place, begun, directory_of, load, not_begun
from autoresearch.config import CampaignConfig
from autoresearch.execute.artifacts import ArtifactStore
from autoresearch.loop.campaign import Campaign, Stage
from autoresearch.loop.ledger import LEDGER
from autoresearch.loop.plan import final_step
from autoresearch.loop.recorded import recorded_config
from autoresearch.loop.steps import Stop
from autoresearch.report.display import console, overview
from autoresearch.report.summary import Summary, summarize
from common import cli, schema
from common.errors import UserError
from common.files import to_plain


def run(words: Sequence[str], stage: Stage = Stage.ALL) -> None:
    """Run a campaign, or a stage of a generation."""
    config, _ = load(words)
    run_campaign(config, stage)


def resume(words: Sequence[str]) -> None:
    """Go on with a campaign by its own settings; budgets and executor may be given anew."""
    config, _ = load(words)
    if not (directory_of(config) / LEDGER).is_file():
        raise not_begun(directory_of(config), config.name)
    began = recorded_config(directory_of(config))
    changed = {"budgets": to_plain(config.budgets), "executor": to_plain(config.executor)}
    run_campaign(schema.build(CampaignConfig, to_plain(began) | changed), Stage.ALL)


def final(words: Sequence[str]) -> None:
    """Measure the winner of a campaign that has ended on its sealed units, once.

    Of a committed campaign it only says what came of it.
    """
    place, _ = begun(words)
    if not place.committed:
        run_campaign(_settings_at(place, words), Stage.FINAL)
        return
    summary = summarize(place.directory)
    store = ArtifactStore(place.directory / "artifacts")
    step = final_step(summary.config, summary.state, store.load)
    if not isinstance(step, Stop):
        raise UserError(
            f"{place.directory} is a committed result, which is not changed: copy it to "
            f"{directory_of(summary.config)} and run final again"
        )
    console().print(overview(summary.config, summary.state))
    cli.finish(numbers(summary) | {"stopped": step.reason})


def _settings_at(place: Place, words: Sequence[str]) -> CampaignConfig:
    """The settings that `words` name, or those that the campaign at `place` was last run with."""
    if any(word.startswith("campaign=") for word in words):
        return load(words)[0]
    config = recorded_config(place.directory)
    if config.name != place.directory.name:
        raise UserError(
            f"{place.directory} holds the campaign {config.name}: name the directory so again"
        )
    return dataclasses.replace(config, root=str(place.directory.parent))


def run_campaign(config: CampaignConfig, stage: Stage) -> None:
    """Run a campaign with its table on the screen, and print its numbers at the end."""
    screen = console()
    with (
        progress(config, screen) as shown,
        Campaign.opened(config, shown.say, shown.watch) as campaign,
    ):
        reason = campaign.run(stage)
    summary = summarize(directory_of(config))
    screen.print(overview(config, summary.state))
    cli.finish(numbers(summary) | {"stopped": reason})


def numbers(summary: Summary) -> dict[str, Any]:
    """The last line of commands that run or show a campaign."""
    state, cost = summary.state, summary.cost
    promoted = [candidate.id for candidate in state.candidates.values() if candidate.promoted]
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
