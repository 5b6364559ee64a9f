"""Gives a proposer its brief, and turns its proposal into a candidate or a refusal."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from autoresearch.config import CampaignConfig
from autoresearch.judge.admission import objections
from autoresearch.loop.ledger import RowKind
from autoresearch.loop.measured import mean_of, training_seed
from autoresearch.loop.state import State
from autoresearch.propose.brief import Brief, Exhausted, Proposer, Trial
from autoresearch.types.artifact import Artifact, JudgeArtifact
from autoresearch.types.overrides import combined, digest
from autoresearch.types.run import BASE
from autoresearch.types.task import JudgeTask, TrainTask
from common.errors import ConfigError, UserError


@dataclass(frozen=True)
class Answer:
    """The row that follows from asking for a proposal, and a line for people."""

    kind: RowKind
    data: dict[str, Any]
    line: str


def ask(
    proposer: Proposer, config: CampaignConfig, state: State, load: Callable[[str], Artifact]
) -> Answer:
    """Ask for one proposal, and let G0 decide on it.

    Raises `ConfigError` where asking again would give nothing until somebody acts.
    """
    brief = make_brief(config, state, load)
    try:
        proposal = proposer.propose(brief)
    except ConfigError:
        raise
    except UserError as error:
        data = {
            "proposal": None,
            "reasons": [str(error)],
            "tokens": getattr(error, "tokens", 0),
            "exhausted": isinstance(error, Exhausted),
            "evidence": getattr(error, "evidence", {}),
        }
        return Answer(RowKind.REFUSED, data, f"no proposal: {error}")
    reasons = objections(proposal, config, brief.parent, brief.base, state.tried)
    plain = dataclasses.asdict(proposal)
    if reasons:
        tokens = proposal.cost.get("tokens", 0)
        data = {"proposal": plain, "reasons": reasons, "tokens": tokens}
        return Answer(RowKind.REFUSED, data, f"refused: {'; '.join(reasons)}")
    overrides, generation = combined(brief.parent, proposal.change, brief.base), state.generation
    name = f"g{generation.number:03d}_c{len(generation.candidates) + 1:02d}"
    data = {"candidate": name, "proposal": plain, "overrides": overrides}
    line = f"{name}: {proposal.change} ({proposal.hypothesis})"
    return Answer(RowKind.PROPOSED, data | {"digest": digest(overrides)}, line)


def make_brief(config: CampaignConfig, state: State, load: Callable[[str], Artifact]) -> Brief:
    """What a proposer may know now."""
    generation = state.generation

    def trained(name: str, number: int) -> TrainTask:
        """The run of a configuration on the whole budget with the screen's seed."""
        seed = training_seed(config, number, 0)
        return TrainTask(name, state.overrides(name), seed, config.budget)

    base = load(state.runs[trained(BASE, 1).key].artifact)
    task = trained(generation.parent, generation.number)
    parent = load(state.runs[task.key].artifact)
    measures = dict(parent.measures)
    rows = _first_judgement(state, task, load).rows
    for name in next(iter(rows.values())):
        if (mean := mean_of(rows, name)) is not None:
            measures[f"judged/{name}"] = mean
    asked = [len(g.candidates) + len(g.refused) for g in state.generations]
    history = tuple(
        Trial(
            candidate=candidate.id,
            overrides=candidate.overrides,
            change=candidate.proposal.change,
            gain=candidate.gain.mean if candidate.gain else None,
            verdict=candidate.verdict,
            hypothesis=candidate.proposal.hypothesis,
            mechanism=str(candidate.mechanism.verdict) if candidate.mechanism else "",
        )
        for candidate in state.candidates.values()
    )
    return Brief(
        generation=generation.number,
        ask=asked[-1],
        total=sum(asked),
        base=base.config,
        parent=state.overrides(generation.parent),
        measures=measures,
        history=history,
    )


def _first_judgement(
    state: State, task: TrainTask, load: Callable[[str], Artifact]
) -> JudgeArtifact:
    for run in state.runs.values():
        if run.finished and isinstance(run.task, JudgeTask) and run.task.trained.key == task.key:
            return load(run.artifact)
    raise LookupError(f"nothing judged {task.key}")
