"""Optuna's tree-structured Parzen estimator as proposer (extra `research`)."""

from __future__ import annotations

from typing import Any

from autoresearch.config import CampaignConfig, Range
from autoresearch.propose.brief import Brief
from autoresearch.types.overrides import rounded
from autoresearch.types.proposal import Proposal
from common.errors import UserError
from common.seeding import derive


class TpeProposer:
    """Proposes what the estimator, fitted to all judged candidates, finds most promising."""

    def __init__(self, config: CampaignConfig) -> None:
        try:
            import optuna
        except ModuleNotFoundError:
            raise UserError(
                "proposer=tpe needs Optuna, which is not installed: pip install -e '.[research]'"
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
        hypothesis = f"Most promising by {len(study.trials) - 1} judged configurations."
        return Proposal(change, hypothesis, primary.name, primary.sign, "tpe")

    def _distribution(self, span: Range) -> Any:
        kinds = self.optuna.distributions
        if span.choices:
            return kinds.CategoricalDistribution(span.choices)
        if span.integer:
            return kinds.IntDistribution(int(span.low), int(span.high), log=span.log)
        return kinds.FloatDistribution(span.low, span.high, log=span.log)
