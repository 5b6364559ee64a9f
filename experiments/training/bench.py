"""What the scripts share that time the training of PPO and of the world model."""

import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from typing import Any

import torch
from gymnasium.vector import VectorEnv
from torch.utils.flop_counter import FlopCounterMode

from common import cli
from common.config import compose
from common.records import write_record
from common.runs import Run, timestamped
from common.torch.device import make_fabric
from ppo.config import PPOTrainConfig
from ppo.evaluate import Driver
from ppo.trainer import PPOTrainer
from ppo.training_run import COMMAND, make_env

SEED = 1
QUICK_POOL = 4
"""Number of tracks with quick=true: drawing more of them would take most of the time."""

Parts = Mapping[str, float]
"""Seconds by activity; `total` is the whole time."""

Results = tuple[dict[str, Any], dict[str, Any]]
"""A part's metrics (numbers or None, by name) and its details (tables, curves)."""


class Stopwatch:
    """Measures the seconds spent inside watched methods."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)

    def watch(self, owner: Any, method: str, name: str) -> None:
        """From now on, count the time spent in `owner.method` as `name`."""
        inner = getattr(owner, method)

        def timed(*args: Any, **kwargs: Any) -> Any:
            start = time.perf_counter()
            try:
                return inner(*args, **kwargs)
            finally:
                self.seconds[name] += time.perf_counter() - start

        setattr(owner, method, timed)

    def lap(self, task: Callable[[], Any]) -> Parts:
        """Run `task` and return how its time was spent."""
        self.seconds.clear()
        start = time.perf_counter()
        task()
        return {"total": time.perf_counter() - start, **self.seconds}


def make_trainer(config: PPOTrainConfig, run: Run, env: VectorEnv) -> PPOTrainer:
    """A trainer on `env`, without validation."""
    fabric = make_fabric(config.device, config.precision, config.processes, COMMAND.script)
    return PPOTrainer(config, run, fabric, env)


class Ours:
    """This project's trainer, run one rollout at a time."""

    def __init__(self, config: PPOTrainConfig, run: Run) -> None:
        self.env = make_env(config)
        self.trainer = make_trainer(config, run, self.env)
        self.policy = self.trainer.policy
        self.watch = Stopwatch()
        self.watch.watch(self.env, "step", "env")
        self.watch.watch(self.policy, "decide", "inference")
        self.watch.watch(self.trainer.algorithm, "update", "update")

    @property
    def ticks(self) -> int:
        """Engine ticks trained so far."""
        return self.trainer.counters.ticks

    @property
    def driver(self) -> Driver:
        """The policy in the form that the evaluator accepts."""
        return Driver(self.policy, self.trainer.spec)

    def advance(self) -> None:
        """Run one rollout and its update."""
        self.trainer.train_once()

    def loss(self) -> torch.Tensor:
        """A value that depends on everything an update computes for one row, to count its work."""
        buffer, row = self.trainer.buffer, torch.zeros(1, dtype=torch.long)
        u = buffer.take("u", row)
        return sum(x.sum() for x in self.policy(buffer.take("pixels", row), u, u))

    def close(self) -> None:
        self.env.close()


def configuration(*overrides: str, quick: bool) -> PPOTrainConfig:
    """The configuration of train_ppo.py with `overrides`, on the CPU; very small if `quick`."""
    fixed = ("device=cpu", f"seed={SEED}")
    small = ["ppo.num_envs=4", "ppo.num_steps=8", "ppo.epochs=1", f"++env.track_pool={QUICK_POOL}"]
    typed = [*fixed, *overrides, *(small if quick else ())]
    return compose("train_ppo", PPOTrainConfig, typed)


def flops(loss: Callable[[], torch.Tensor]) -> dict[str, int]:
    """Floating-point operations of `loss` and its gradient, by kind of layer, counted by torch."""
    with FlopCounterMode(display=False) as counter:
        loss().backward()
    counts: dict[str, int] = defaultdict(int)
    for operation, count in counter.get_flop_counts()["Global"].items():
        counts["convolutions" if "conv" in str(operation) else "linear layers"] += count
    return dict(counts)


def by_operation(trace: Any, operations: Mapping[str, str]) -> dict[str, float]:
    """Seconds of torch operations by purpose.

    Args:
        trace: the result of `torch.profiler.profile`.
        operations: name -> regular expression for torch's lower-case operation names. The first
            match counts; operations without a match are left out.
    """
    seconds = dict.fromkeys(operations, 0.0)
    for event in trace.key_averages():
        key = event.key.lower()
        part = next((name for name, form in operations.items() if re.search(form, key)), None)
        if part:
            seconds[part] += event.self_cpu_time_total / 1e6
    return seconds


def measure(
    script: str,
    parts: Mapping[str, Callable[[Any, Run], Results]],
    settings: Any,
    records: Mapping[str, str],
) -> None:
    """Run `parts` one after the other; write a run directory, the last line and the record.

    Args:
        script: name of the command and of its runs.
        parts: name -> function that measures it, called with `settings` and the run.
        settings: the command's dataclass, with `threads`, `record` and `run_root`. A record is
            written only if `record` is true.
        records: part -> name of its record. Parts with the same name are written together.
    """
    torch.set_num_threads(settings.threads)
    run = Run.create(settings.run_root, timestamped(script), asdict(settings), seeds={"root": SEED})
    metrics: dict[str, dict[str, Any]] = {}
    details: dict[str, Any] = {}
    for name, measure_part in parts.items():
        metrics[name], details[name] = measure_part(settings, run)
        run.write_json("details.json", details)  # after each part, because a part can take hours
        together = [part for part in parts if records[part] == records[name]]
        if settings.record and all(part in metrics for part in together):
            write_record(
                records[name],
                command=cli.command(f"scripts/{script}.py"),
                settings=asdict(settings),
                metrics=_merged(metrics[part] for part in together),
                details={part: details[part] for part in together},
            )
    cli.finish(_merged(metrics.values()), run)


def _merged(metrics: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    return {name: value for part in metrics for name, value in part.items()}
