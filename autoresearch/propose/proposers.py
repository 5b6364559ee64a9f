"""Who proposes: chance, rules, a model of past results, or a recording. `llm.py` asks a model.

A proposer sees a `Brief`, typed numbers only, and gives one proposal; whether it may be tried is
for `proposal.objections` to say. Equal briefs give equal proposals, so a campaign that was killed
goes on with the very same ones.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from autoresearch.config import CampaignConfig, Range
from autoresearch.propose.proposal import Proposal, combined, digest, rounded
from autoresearch.propose.rules import RULES, Rule
from common.errors import UserError
from common.seeding import derive


class Exhausted(UserError):
    """A proposer has no more proposals, however often it is asked."""


@dataclass(frozen=True)
class Trial:
    """What became of an earlier candidate.

    Attributes:
        candidate: its id.
        overrides: against the base.
        change: against its parent.
        gain: of the primary over its parent as far as it was judged, None for a failure.
        verdict: in a word, such as win, futile, crash.
        hypothesis: what was expected, and `mechanism` whether it came.
    """

    candidate: str
    overrides: dict[str, Any]
    change: dict[str, Any]
    gain: float | None
    verdict: str
    hypothesis: str = ""
    mechanism: str = ""


@dataclass(frozen=True)
class Brief:
    """What a proposer may know.

    Attributes:
        generation: its number; `ask`: number of this question in the generation, `total` in the
            campaign, from 0 on.
        base: the base's configuration, dotted; parent: the parent's overrides of it.
        measures: of the parent's run: training's last, and judged means as judged/<name>.
        history: every candidate before, in order.
    """

    generation: int
    ask: int
    total: int
    base: dict[str, Any]
    parent: dict[str, Any]
    measures: dict[str, float | None] = field(default_factory=dict)
    history: tuple[Trial, ...] = ()

    def value(self, key: str) -> Any:
        """What the parent has for `key`."""
        return self.parent.get(key, self.base.get(key))

    def is_new(self, change: Mapping[str, Any]) -> bool:
        """Whether `change` leads to a configuration that nobody tried, nor the parent has."""
        wanted = digest(combined(self.parent, change, self.base))
        known = {digest(trial.overrides) for trial in self.history}
        return wanted not in known | {digest(combined(self.parent, {}, self.base))}


class Proposer(Protocol):
    """Gives proposals."""

    def propose(self, brief: Brief) -> Proposal:
        """One proposal; `UserError` if there is none to be had, with the reason."""


class RandomProposer:
    """Changes one to `keys` keys to values drawn from their ranges: the baseline for all others."""

    def __init__(self, config: CampaignConfig) -> None:
        self.config = config

    def propose(self, brief: Brief) -> Proposal:
        seed = derive(self.config.seed, "random proposer", brief.generation, brief.ask)
        rng = np.random.default_rng(seed)
        keys = sorted(self.config.space)
        count = int(rng.integers(1, min(self.config.proposer.keys, len(keys)) + 1))
        chosen = [keys[i] for i in rng.choice(len(keys), count, replace=False)]
        change = {key: drawn(self.config.space[key], rng) for key in chosen}
        primary = self.config.gates.primary
        told = "Drawn at random: no reason but the range."
        return Proposal(rounded(change), told, primary.name, primary.sign, "random")


class RuleProposer:
    """One change at a time: answers to the failures that the parent shows, then plain tuning."""

    def __init__(self, config: CampaignConfig, rules: Sequence[Rule] = RULES) -> None:
        self.config, self.rules = config, rules

    def propose(self, brief: Brief) -> Proposal:
        primary = self.config.gates.primary
        answering = [rule for rule in self.rules if rule.when and rule.when(brief.measures)]
        tuning = [rule for rule in self.rules if rule.when is None]
        for strength in (1, 2, 3):
            for rule in (*answering, *tuning):
                span = self.config.space.get(rule.key)
                value = rule.moved(brief.value(rule.key), span, strength) if span else None
                if value is None:
                    continue
                change = rounded({rule.key: value})
                if span.accepts(change[rule.key]) is None and brief.is_new(change):
                    observable, sign = rule.observable, rule.sign
                    if observable not in (self.config.metrics or (primary.name,)):
                        observable, sign = primary.name, primary.sign
                    source = f"rule {rule.name}"
                    return Proposal(change, rule.hypothesis, observable, sign, source)
        raise Exhausted("rules: every rule that applies has been tried")


class TpeProposer:
    """Optuna's tree-structured Parzen estimator over what has been judged (extra `research`)."""

    def __init__(self, config: CampaignConfig) -> None:
        try:
            import optuna
        except ModuleNotFoundError:
            raise UserError(
                "proposer.kind=tpe needs an extra: pip install -e '.[research]'"
            ) from None
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self.config, self.optuna = config, optuna

    def propose(self, brief: Brief) -> Proposal:
        optuna, space = self.optuna, self.config.space
        seed = derive(self.config.seed, "tpe proposer", brief.generation, brief.ask) % 2**32
        sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=5)
        study = optuna.create_study(direction="maximize", sampler=sampler)
        distributions = {key: self._distribution(span) for key, span in space.items()}
        for trial in brief.history:
            if trial.gain is None:
                continue
            values = {key: trial.overrides.get(key, brief.base.get(key)) for key in space}
            if all(d._contains(d.to_internal_repr(values[k])) for k, d in distributions.items()):
                study.add_trial(
                    optuna.trial.create_trial(
                        params=values, distributions=distributions, value=trial.gain
                    )
                )
        asked = study.ask(distributions).params
        change = rounded({k: v for k, v in asked.items() if v != brief.value(k)})
        primary = self.config.gates.primary
        told = f"Most promising by {len(study.trials) - 1} judged configurations."
        return Proposal(change, told, primary.name, primary.sign, "tpe")

    def _distribution(self, span: Range) -> Any:
        kinds = self.optuna.distributions
        if span.choices:
            return kinds.CategoricalDistribution(span.choices)
        if span.integer:
            return kinds.IntDistribution(int(span.low), int(span.high), log=span.log)
        return kinds.FloatDistribution(span.low, span.high, log=span.log)


class TranscriptProposer:
    """Proposals from a JSON-lines file, in order: another campaign's, or a model's of old."""

    def __init__(self, path: Path) -> None:
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f"proposer.transcript={path}: {error}") from None
        self.path, self.lines = path, [line for line in text.split("\n") if line.strip()]

    def propose(self, brief: Brief) -> Proposal:
        if brief.total >= len(self.lines):
            raise Exhausted(f"transcript: {self.path} is at its end")
        try:
            content = json.loads(self.lines[brief.total])
        except (ValueError, RecursionError) as error:
            raise UserError(f"transcript: proposal {brief.total + 1} is no JSON: {error}") from None
        return Proposal.parse(content, "transcript")


def make_proposer(config: CampaignConfig) -> Proposer:
    """The proposer that a campaign names."""
    from autoresearch.propose.llm import LanguageModelProposer

    kinds: dict[str, Callable[[], Proposer]] = {
        "random": lambda: RandomProposer(config),
        "rules": lambda: RuleProposer(config),
        "tpe": lambda: TpeProposer(config),
        "llm": lambda: LanguageModelProposer(config),
        "transcript": lambda: TranscriptProposer(Path(config.proposer.transcript)),
    }
    return kinds[config.proposer.kind]()


def drawn(span: Range, rng: np.random.Generator) -> Any:
    """A value of a range, by chance."""
    if span.choices:
        return span.choices[int(rng.integers(len(span.choices)))]
    if span.log:
        value = math.exp(rng.uniform(math.log(span.low), math.log(span.high)))
    else:
        value = float(rng.uniform(span.low, span.high))
    if span.integer:
        return int(min(max(round(value), math.ceil(span.low)), math.floor(span.high)))
    return min(max(value, span.low), span.high)
