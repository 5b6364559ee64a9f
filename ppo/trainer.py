"""PPO's training: collect, update, validate; and all of its state, for an exact resume."""

import dataclasses
import io
import math
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from lightning.fabric import Fabric
from torch import Tensor

from common.rl.scaling import ReturnScaler, RunningMoments
from common.runs import Run
from common.seeding import derive
from common.torch.checkpoint import save_rejected
from common.torch.random import load_random_state, random_state
from common.torch.session import Session
from ppo import checkpoint
from ppo.algorithm import PPO, AveragedWeights, TrainingDiverged, copied, scheduled_rate
from ppo.config import PPOTrainConfig
from ppo.diagnostics import action_statistics, as_metrics, diagnose, steady_steer
from ppo.policy import ActorCritic
from ppo.rollout import RolloutBuffer, RolloutCollector, RolloutStats
from ppo.validation import Snapshot, Validation

RECENT_EPISODES = 100


@dataclass
class Counters:
    """How far training is; ticks and decisions are over all processes.

    `seconds` are the run's, over all resumes; `validated` the ticks at the last validation.
    """

    updates: int = 0
    ticks: int = 0
    decisions: int = 0
    episodes: int = 0
    seconds: float = 0.0
    validated: int = 0


class PPOTrainer:
    """Trains one policy on one vector environment per process: the `Learner` of a session.

    `validation` is None where it is off, and used on the first process only. `about` joins every
    checkpoint's provenance.
    """

    def __init__(
        self,
        config: PPOTrainConfig,
        run: Run,
        fabric: Fabric,
        env: gymnasium.vector.VectorEnv,
        *,
        validation: Validation | None = None,
        about: Mapping[str, Any] | None = None,
    ) -> None:
        self.config, self.run, self.fabric, self.env = config, run, fabric, env
        self.validation, self.about = validation, dict(about or {})
        self.spec = config.env.observation
        torch.manual_seed(derive(config.seed, "weights"))
        self.policy = ActorCritic(self.spec, config.ppo.network).to(fabric.device)
        # One generator per purpose and process: what one draws never shifts another.
        self.generators = {
            name: torch.Generator().manual_seed(derive(config.seed, name, fabric.global_rank))
            for name in ("actions", "minibatches")
        }
        self.algorithm = PPO(
            fabric, self.policy, config.ppo, self.generators["minibatches"], self._save_batch
        )
        n_streams = env.num_envs
        self.buffer = RolloutBuffer(
            config.ppo.num_steps, n_streams, self.spec, len(self.policy.controls), fabric.device
        )
        self.collector = RolloutCollector(
            env,
            self.spec,
            self.policy,
            self.buffer,
            self.generators["actions"],
            fabric.autocast,
            config.ppo.bootstrap_truncation,
        )
        self.averaged = AveragedWeights(self.policy, config.ppo.weight_average)
        self.scaler = None
        if config.ppo.scale_rewards:
            self.scaler = ReturnScaler(n_streams, config.ppo.gamma, self._gather_moments)
        self.counters = Counters()
        self.learning_rate = config.ppo.learning_rate
        self.last_kl: float | None = None
        self.best = -math.inf
        self.recent: deque[dict[str, float]] = deque(maxlen=RECENT_EPISODES)
        self._flagged: set[str] = set()

    @property
    def spent(self) -> int:
        """Ticks of the budget."""
        return self.counters.ticks

    @property
    def best_checkpoint(self) -> Path:
        return self.run.checkpoints / "best.pt"

    def advance(self, session: Session) -> None:
        """One rollout and its update; rows, warnings and validations go through the session."""
        try:
            row = self.train_once()
        except TrainingDiverged:
            row = {"ppo/skipped_steps": self.algorithm.skipped_in_a_row}
            row |= dataclasses.asdict(self.counters) | as_metrics(diagnose(row))
            session.log(row, self.counters.ticks, show=False)
            raise
        self.counters.seconds = session.seconds
        self._validate(row, session)
        self._publish(row | {"seconds": self.counters.seconds}, session)

    def conclude(self, session: Session) -> None:
        """Wait for the verdicts of a run that was killed just before its end."""
        self._take_verdicts(session, wait=True)

    def train_once(self) -> dict[str, Any]:
        """One rollout and one update; returns the row of metrics."""
        started, ppo = time.perf_counter(), self.config.ppo
        elapsed = self.counters.ticks / self.config.total_timesteps
        self.policy.limit_noise(elapsed)
        stats = self.collector.collect()
        self.collector.finish(ppo.gamma, ppo.lam, self.scaler)
        collected = time.perf_counter()
        self.learning_rate = scheduled_rate(ppo, elapsed, self.learning_rate, self.last_kl)
        self.algorithm.set_learning_rate(self.learning_rate)
        metrics = self.algorithm.update(self.buffer)
        self.averaged.update()
        self.last_kl = metrics.get("approx_kl", self.last_kl)
        ended = time.perf_counter()
        ticks, decisions, episodes = self._totals(stats)
        self.counters.updates += 1
        self.counters.ticks += ticks
        self.counters.decisions += decisions
        self.counters.episodes += episodes
        self.recent.extend(stats.episodes)
        return {
            **{name: getattr(self.counters, name) for name in ("updates", "ticks", "decisions")},
            "ticks_per_second": ticks / (ended - started),
            "decisions_per_second": decisions / (ended - started),
            "collect_seconds": collected - started,
            "update_seconds": ended - collected,
            **self._episode_metrics(stats),
            **{f"ppo/{name}": value for name, value in metrics.items()},
            "ppo/learning_rate": self.learning_rate,
            "ppo/return_std": self.scaler.moments.std if self.scaler else None,
            **{f"ppo/std_{name}": value for name, value in self._stds().items()},
            **{f"action/{name}": value for name, value in self._action_metrics().items()},
        }

    def state_dict(self) -> dict[str, Any]:
        """Everything that an exact resume needs. All processes must call it."""
        return {
            "counters": dataclasses.asdict(self.counters),
            "policy": self.policy.state_dict(),
            "averaged": self.averaged.state_dict(),
            "algorithm": self.algorithm.state_dict(),
            "learning_rate": self.learning_rate,
            "last_kl": self.last_kl,
            "best": self.best,
            "validation": self.validation.state_dict() if self.validation else [],
            "recent": list(self.recent),
            "streams": self._gather(self._stream_state()),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from the state of a run of the same configuration."""
        self.policy.load_state_dict(state["policy"])
        self.averaged.load_state_dict(state["averaged"])
        self.algorithm.load_state_dict(state["algorithm"])
        self.counters = Counters(**state["counters"])
        self.learning_rate, self.last_kl = state["learning_rate"], state["last_kl"]
        self.best = state["best"]
        if self.validation is not None and self.fabric.is_global_zero:
            self.validation.load_state_dict(state["validation"])
        self.recent = deque(state["recent"], maxlen=RECENT_EPISODES)
        self._load_stream_state(state["streams"][self.fabric.global_rank])

    def write_checkpoint(self, path: Path, state: Mapping[str, Any], training: Any) -> None:
        """Write the averaged weights, which are the ones to drive with, and what a resume needs."""
        self._write(path, state["averaged"], dataclasses.asdict(self.counters), training)

    def _stream_state(self) -> dict[str, Any]:
        """The state that each process has of its own: its environment and random numbers."""
        return {
            "collector": self.collector.state_dict(),
            "scaler": self.scaler.state_dict() if self.scaler else None,
            "generators": {name: g.get_state() for name, g in self.generators.items()},
            # Ours draw from generators of their own; these are for libraries that do not.
            "global": random_state(),
        }

    def _load_stream_state(self, state: Mapping[str, Any]) -> None:
        self.collector.load_state_dict(state["collector"])
        if self.scaler:
            self.scaler.load_state_dict(state["scaler"])
        for name, generator in self.generators.items():
            generator.set_state(state["generators"][name])
        load_random_state(state["global"])

    def _due(self, last: int, every: int) -> bool:
        """Whether `every` more ticks have passed since `last`, or the budget is spent."""
        if not every:
            return False
        return self.counters.ticks - last >= every or self._finished

    @property
    def _finished(self) -> bool:
        return self.counters.ticks >= self.config.total_timesteps

    def _validate(self, row: Mapping[str, Any], session: Session) -> None:
        """Hand over a snapshot when it is time, and take what verdicts there are."""
        if self._due(self.counters.validated, self.config.evaluation.every):
            self.counters.validated = self.counters.ticks
            if self.validation is not None and self.fabric.is_global_zero:
                about = dataclasses.asdict(self.counters)
                about |= {name: row[name] for name in row if name.startswith("episode/")}
                self.validation.submit(Snapshot(about, copied(self.averaged.state_dict())))
        self._take_verdicts(session, wait=self._finished)

    def _take_verdicts(self, session: Session, wait: bool) -> None:
        if self.validation is not None:
            for snapshot, summary in self.validation.judged(wait=wait):
                self._compare(snapshot, summary, session)

    def _compare(self, snapshot: Snapshot, summary: Mapping[str, Any], session: Session) -> None:
        """Keep the snapshot's weights if they drove better than all before; log how they did."""
        name = self.config.evaluation.metric
        score = summary[name]["mean"]
        if score > self.best:
            self.best = score
            about = {field.name: snapshot.row[field.name] for field in dataclasses.fields(Counters)}
            about["validation"] = dict(summary)
            self._write(self.best_checkpoint, snapshot.weights, about)
            session.say(
                f"{snapshot.row['ticks']:,} ticks: validation {name} {score:.4g}, the best so far"
            )
        means = {
            f"validation/{key}": value["mean"]
            for key, value in summary.items()
            if isinstance(value, Mapping)
        }
        session.log(snapshot.row | means, self.counters.ticks, show=False)

    def _write(
        self,
        path: Path,
        weights: Mapping[str, Tensor],
        about: Mapping[str, Any],
        training: Mapping[str, Any] | None = None,
    ) -> None:
        about, network = self.about | about, self.config.ppo.network
        checkpoint.save(path, weights, self.spec, network, about, training)

    def _publish(self, row: dict[str, Any], session: Session) -> None:
        if not self.fabric.is_global_zero:
            return
        diagnoses = [d for d in diagnose(row) if d.value is not None]
        row |= as_metrics(diagnoses)
        failing = {d.name for d in diagnoses if d.failed}
        for d in diagnoses:
            if d.name in failing - self._flagged:
                session.say(d.warning)
        # Unmeasured is not healthy again: a warning is repeated only after a good row.
        self._flagged = failing | (self._flagged - {d.name for d in diagnoses})
        session.log(row, self.counters.ticks)

    def _episode_metrics(self, stats: RolloutStats) -> dict[str, float | None]:
        """Means over recent episodes, and each reward term per decision of this rollout."""
        means = {}
        for name in self.recent[-1] if self.recent else ():
            values = [e[name] for e in self.recent if math.isfinite(e[name])]  # no lap, no lap time
            means[f"episode/{name}"] = float(np.mean(values)) if values else None
        decisions = max(stats.decisions, 1)
        terms = {f"reward/{name}": total / decisions for name, total in stats.reward_terms.items()}
        return means | terms | {"reward/total": stats.reward / decisions}

    def _action_metrics(self) -> dict[str, float]:
        buffer = self.buffer
        return action_statistics(buffer.take("action", buffer.active_rows())) | {
            "steady_steer": steady_steer(buffer.action[..., 0], buffer.active)
        }

    def _stds(self) -> dict[str, float]:
        stds = self.policy.log_std.detach().exp().tolist()
        return dict(zip(self.policy.controls, stds, strict=True))

    def _save_batch(self, rows: dict[str, Tensor]) -> str:
        number = self.algorithm.skipped_in_a_row
        path = self.run.path / "nonfinite" / f"rank{self.fabric.global_rank}_{number}.pt"
        return save_rejected(path, rows)

    def _totals(self, stats: RolloutStats) -> tuple[int, int, int]:
        """Ticks, decisions and ended episodes of this rollout over all processes."""
        totals = torch.tensor([stats.ticks, stats.decisions, len(stats.episodes)])
        if self.fabric.world_size > 1:
            totals = self.fabric.all_reduce(totals, reduce_op="sum")
        ticks, decisions, episodes = totals.tolist()
        return ticks, decisions, episodes

    def _gather(self, data: Any) -> list[Any]:
        """`data`, plain data and tensors, of every process, in rank order."""
        if self.fabric.world_size == 1:
            return [data]
        buffer = io.BytesIO()
        torch.save(
            data, buffer
        )  # left to torch, it would be a pickle, and fail on unsigned tensors
        parts: list[Any] = [None] * self.fabric.world_size
        torch.distributed.all_gather_object(parts, buffer.getvalue())
        return [torch.load(io.BytesIO(part), weights_only=True) for part in parts]

    def _gather_moments(self, moments: RunningMoments) -> list[RunningMoments]:
        return [RunningMoments(**state) for state in self._gather(moments.state_dict())]
