"""The training loop: collect, update, log, validate, save; and its state, for an exact resume."""

import dataclasses
import math
import random
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from lightning.fabric import Fabric
from torch import Tensor

from common.files import replacing
from common.mirror import Mirror
from common.nn import ReturnScaler, RunningMoments
from common.runs import Run
from common.seeding import derive
from ppo import checkpoint
from ppo.algorithm import PPO, scheduled_rate
from ppo.config import TrainConfig
from ppo.diagnostics import action_statistics, diagnose
from ppo.display import Display
from ppo.evaluate import Driver
from ppo.policy import ActorCritic
from ppo.rollout import Collector, RolloutBuffer, RolloutStats

RECENT_EPISODES = 100

Validate = Callable[[Driver], Mapping[str, Any]]
"""Drives the validation tracks; returns the evaluation's summary."""


@dataclass
class Counters:
    """How far training is; ticks and decisions are over all processes, seconds those in `fit`.

    `validated` and `saved` are the ticks at the last validation and the last checkpoint.
    """

    updates: int = 0
    ticks: int = 0
    decisions: int = 0
    episodes: int = 0
    seconds: float = 0.0
    validated: int = 0
    saved: int = 0


class Trainer:
    """Trains one policy on one vector environment (per process) and writes into one run.

    `validate` is None where validation is off. `about` joins every checkpoint's provenance.
    """

    def __init__(
        self,
        config: TrainConfig,
        run: Run,
        fabric: Fabric,
        env: gymnasium.vector.VectorEnv,
        *,
        validate: Validate | None = None,
        mirror: Mirror | None = None,
        about: Mapping[str, Any] | None = None,
    ) -> None:
        self.config, self.run, self.fabric, self.env = config, run, fabric, env
        self.validate, self.mirror, self.about = validate, mirror, dict(about or {})
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
        self.buffer = RolloutBuffer(config.ppo.num_steps, n_streams, self.spec, fabric.device)
        self.collector = Collector(
            env, self.spec, self.policy, self.buffer, self.generators["actions"], fabric.autocast
        )
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
    def last_checkpoint(self) -> Path:
        return self.run.checkpoints / "last.pt"

    @property
    def best_checkpoint(self) -> Path:
        return self.run.checkpoints / "best.pt"

    def fit(self, display: Display) -> None:
        """Train until the budget is spent, then save."""
        while self.counters.ticks < self.config.total_timesteps:
            started = time.perf_counter()
            row = self.train_once()
            if self._due(self.counters.validated, self.config.evaluation.every):
                self.counters.validated = self.counters.ticks
                row |= self._validate(display)
            self.counters.seconds += time.perf_counter() - started
            self._publish(row | {"seconds": self.counters.seconds}, display)
            if self._due(self.counters.saved, self.config.checkpoint_every):
                self.save()

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

    def save(self) -> None:
        """Write last.pt: everything that `load` needs. All processes must call it."""
        self.counters.saved = self.counters.ticks
        streams = self._gather(self._stream_state())
        if self.fabric.is_global_zero:
            training = {
                "counters": dataclasses.asdict(self.counters),
                "optimiser": self.algorithm.optimiser.state_dict(),
                "moments": self.scaler.moments.state_dict() if self.scaler else None,
                "learning_rate": self.learning_rate,
                "last_kl": self.last_kl,
                "best": self.best,
                "recent": list(self.recent),
                "streams": streams,
            }
            self._write(self.last_checkpoint, training)

    def load(self, content: Mapping[str, Any]) -> None:
        """Continue from a loaded last.pt of the same configuration."""
        state = content["training"]
        self.policy.load_state_dict(content["policy"])
        self.algorithm.optimiser.load_state_dict(state["optimiser"])
        self.counters = Counters(**state["counters"])
        self.learning_rate, self.last_kl = state["learning_rate"], state["last_kl"]
        self.best = state["best"]
        self.recent = deque(state["recent"], maxlen=RECENT_EPISODES)
        self._load_stream_state(state["streams"][self.fabric.global_rank])
        if self.scaler:
            self.scaler.moments.load_state_dict(state["moments"])

    def _stream_state(self) -> dict[str, Any]:
        """This process's own part: its environment, observations and generators."""
        return {
            "env": checkpoint.to_tensors(self.env.snapshot()),
            "pixels": self.collector.pixels.cpu(),
            "active": self.collector.active,
            "running_returns": self.scaler.running if self.scaler else None,
            "generators": {name: g.get_state() for name, g in self.generators.items()},
            # Ours draw from generators of their own; these are for libraries that do not.
            "global": {
                "torch": torch.get_rng_state(),
                "numpy": checkpoint.to_tensors(np.random.get_state(legacy=False)),
                "python": random.getstate(),
            },
            "skipped": self.algorithm.skipped_in_a_row,
        }

    def _load_stream_state(self, state: Mapping[str, Any]) -> None:
        self.env.restore(checkpoint.to_arrays(state["env"]))
        self.collector.pixels = state["pixels"].to(self.fabric.device)
        self.collector.active = state["active"]
        if self.scaler:
            self.scaler.running = state["running_returns"]
        for name, generator in self.generators.items():
            generator.set_state(state["generators"][name])
        torch.set_rng_state(state["global"]["torch"])
        np.random.set_state(checkpoint.to_arrays(state["global"]["numpy"]))
        random.setstate(state["global"]["python"])
        self.algorithm.skipped_in_a_row = state["skipped"]

    def _due(self, last: int, every: int) -> bool:
        """Whether `every` more ticks have passed since `last`, or the budget is spent."""
        if not every:
            return False
        return self.counters.ticks - last >= every or self._finished

    @property
    def _finished(self) -> bool:
        return self.counters.ticks >= self.config.total_timesteps

    def _validate(self, display: Display) -> dict[str, float | None]:
        """Drive the validation tracks with the deterministic policy; keep it if it is the best."""
        if self.validate is None or not self.fabric.is_global_zero:
            return {}
        started = time.perf_counter()
        summary = self.validate(Driver(self.policy, self.spec))
        score = summary[self.config.evaluation.metric]["mean"]
        if score > self.best:
            self.best = score
            self._write(self.best_checkpoint, validation=dict(summary))
            display.say(
                f"{self.counters.ticks:,} ticks: validation "
                f"{self.config.evaluation.metric} {score:.4g}, the best so far"
            )
        row = {f"validation/{k}": v["mean"] for k, v in summary.items() if isinstance(v, Mapping)}
        return row | {"validation/seconds": time.perf_counter() - started}

    def _write(self, path: Path, training: Mapping[str, Any] | None = None, **about: Any) -> None:
        about = self.about | dataclasses.asdict(self.counters) | about
        network = self.config.ppo.network
        checkpoint.save(path, self.policy, self.spec, network, about, training)

    def _publish(self, row: dict[str, Any], display: Display) -> None:
        if not self.fabric.is_global_zero:
            return
        findings = diagnose(row)
        row |= {f"diagnostics/{finding.name}": finding.value for finding in findings}
        for finding in findings:
            if finding.name not in self._flagged:
                display.say(f"warning: {finding.name}: {finding.message} ({finding.value:.3g})")
        self._flagged |= {finding.name for finding in findings}
        self.run.log(row)
        if self.mirror is not None:
            self.mirror.log(row, self.counters.ticks)
        display.show(row)

    def _episode_metrics(self, stats: RolloutStats) -> dict[str, float | None]:
        """Means over recent episodes, and each reward term per decision of this rollout."""
        means = {}
        for name in self.recent[-1] if self.recent else ():
            values = [e[name] for e in self.recent if math.isfinite(e[name])]  # no lap, no lap time
            means[f"episode/{name}"] = float(np.mean(values)) if values else None
        decisions = max(stats.decisions, 1)
        terms = {f"reward/{k}": v / decisions for k, v in stats.reward_terms.items()}
        return means | terms | {"reward/total": stats.reward / decisions}

    def _action_metrics(self) -> dict[str, float]:
        return action_statistics(self.buffer.take("action", self.buffer.active_rows()))

    def _stds(self) -> dict[str, float]:
        stds = self.policy.log_std.detach().exp().tolist()
        return dict(zip(("steer", "gas", "brake"), stds, strict=True))

    def _save_batch(self, rows: dict[str, Tensor]) -> str:
        number = self.algorithm.skipped_in_a_row
        path = self.run.path / "nonfinite" / f"rank{self.fabric.global_rank}_{number}.pt"
        with replacing(path) as temporary:
            torch.save(rows, temporary)
        return str(path)

    def _totals(self, stats: RolloutStats) -> tuple[int, int, int]:
        """Ticks, decisions and ended episodes of this rollout over all processes."""
        own = torch.tensor([stats.ticks, stats.decisions, len(stats.episodes)])
        if self.fabric.world_size > 1:
            own = self.fabric.all_reduce(own, reduce_op="sum")
        ticks, decisions, episodes = own.tolist()
        return ticks, decisions, episodes

    def _gather(self, own: Any) -> list[Any]:
        """`own` of every process, in rank order."""
        if self.fabric.world_size == 1:
            return [own]
        parts: list[Any] = [None] * self.fabric.world_size
        torch.distributed.all_gather_object(parts, own)
        return parts

    def _gather_moments(self, own: RunningMoments) -> list[RunningMoments]:
        return self._gather(own)
