"""Where the training time of our PPO goes, and what other switches would make of it."""

from dataclasses import replace
from functools import partial
from operator import truediv
from shutil import which
from statistics import median
from typing import TYPE_CHECKING, Any, Literal

from common import cli
from common.runs import Run
from common.schema import config_class

if TYPE_CHECKING:
    from experiments.training.bench import Results

DESCRIPTION = """Take the training time of PPO with its defaults (CarRacing-v3's game) apart.

    python scripts/profile_ppo.py                  all parts
    python scripts/profile_ppo.py part=profile     where the time goes, and what bounds it
    python scripts/profile_ppo.py part=variants    memory formats, precisions, threads, ...
    python scripts/profile_ppo.py part=validation  what validating beside training costs it
    python scripts/profile_ppo.py quick=true       all parts at their smallest

profile: collecting is timed by a stopwatch, an update is taken apart by torch's profiler; the rate
of the convolutions stands beside the best that torch reaches here on sizes that suit it.
variants: the default network under other switches, in turns, so that what slows the machine slows
all; ratios are medians over `rounds`, before which one is spent on compiling kernels.
validation: stretches of `evaluation.every` ticks of training with one validation in the background
and without, in turns."""


@config_class
class Settings:
    """The settings of the command.

    Attributes:
        part: one part of the study, or all.
        quick: everything at its smallest.
        rounds: measured turns of variants.
        stretches: measured turns of validation, minutes each.
        threads: torch's CPU threads.
        record: keep as experiments/records/ppo_profile.json.
        run_root: where the run directory goes.
    """

    part: Literal["all", "profile", "variants", "validation"] = "all"
    quick: bool = False
    rounds: int = 7
    stretches: int = 3
    threads: int = 2
    record: bool = False
    run_root: str = "runs"

    def __post_init__(self) -> None:
        cli.check_ranges(self, rounds=(1, 100), stretches=(1, 100), threads=(1, 256))
        if self.record and (self.quick or self.part != "all"):
            raise ValueError("record=true keeps the whole study: leave out quick and part")


OPERATIONS = {
    "convolutions, backward": "conv.*backward",
    "convolutions, forward": "conv",
    "linear layers": "mm|linear",
    "optimiser": "adam|optimizer|foreach|vector_norm",
    "gather rows": "index_select",
    "pixels to float, copies": "copy",
    "activations": "relu|threshold|clamp_min",
}
"""Parts of an update by the names of torch's operations; the first that matches counts."""


def profile(settings: Settings, run: Run) -> "Results":
    """Where training time goes by default, and what bounds it; metrics and details."""
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as profiler

    from experiments.training import bench

    config = bench.configuration("experiment=carracing_900", quick=settings.quick)
    ours = bench.Ours(config, run)
    ours.advance()
    lap = ours.watch.lap(lambda: [ours.advance() for _ in range(3)])
    algorithm, buffer = ours.trainer.algorithm, ours.trainer.buffer
    with profiler(activities=[ProfilerActivity.CPU]) as trace:
        update = ours.watch.lap(lambda: algorithm.update(buffer))["total"]
    inside = bench.by_operation(trace, OPERATIONS)
    rows = len(buffer.active_rows()) * ours.trainer.config.ppo.epochs
    stepping, deciding, updating = (
        lap[name] / lap["total"] for name in ("env", "inference", "update")
    )
    shares = {
        "collect: environment": stepping,
        "collect: inference": deciding,
        "collect: copies, advantages": 1 - stepping - deciding - updating,
    }
    shares |= {f"update: {name}": updating * s / update for name, s in inside.items()}
    shares["update: rest"] = updating * (1 - sum(inside.values()) / update)
    cli.table(["part", "share of training"], list(shares.items()), "profile")

    convolving = inside["convolutions, forward"] + inside["convolutions, backward"]
    share = updating * convolving / update
    achieved = bench.flops(ours.loss)["convolutions"] * rows / convolving / 1e9
    ours.close()
    peaks = peak_gflops()
    others = {k: v for k, v in shares.items() if "convolutions" not in k}
    largest = max(others, key=lambda name: others[name])
    print(
        f"bounded by {'the convolutions' if share > others[largest] else largest}; convolutions "
        f"are {share:.0%} of training (besides those of inference) at {achieved:.0f} GFLOP/s; here "
        f"a matrix product reaches {peaks['matmul']:.0f}, a well-shaped convolution "
        f"{peaks['convolution']:.0f}"
    )
    metrics = {"convolution_share": share, "convolution_gflops": achieved,
               "peak_gflops": max(peaks.values())}  # fmt: skip
    return metrics, {"shares": shares, "peak_gflops": peaks, "laps": lap}


def peak_gflops(times: int = 10) -> dict[str, float]:
    """The best rates that torch reaches here in float32, on sizes that suit it."""
    import torch

    from experiments.training.bench import Stopwatch

    side, channels, size = 1536, 64, 34
    a = torch.rand(side, side)
    x = torch.rand(32, channels, size, size).to(memory_format=torch.channels_last)
    weight = torch.rand(channels, channels, 3, 3).to(memory_format=torch.channels_last)
    work = {
        "matmul": (lambda: a @ a, 2 * side**3),
        "convolution": (
            lambda: torch.nn.functional.conv2d(x, weight),
            2 * len(x) * weight.numel() * (size - 2) ** 2,
        ),
    }
    watch = Stopwatch()
    return {
        name: count / min(watch.lap(task)["total"] for _ in range(times)) / 1e9
        for name, (task, count) in work.items()
    }


def variants(settings: Settings, run: Run) -> "Results":
    """Our default network under other switches, in turns; metrics and details."""
    import torch

    from experiments.training import bench
    from ppo.training_run import make_env

    # A quarter of the default rollout, with minibatches of the default size.
    sizes = () if settings.quick else ("ppo.num_steps=32", "ppo.minibatches=2", "ppo.epochs=1")
    make = partial(bench.configuration, "experiment=carracing_900", *sizes, quick=settings.quick)
    base = make()
    env, count = make_env(base), base.ppo.num_envs * base.ppo.num_steps
    other = 1 if settings.threads > 1 else 2
    configs = {"default": base, "contiguous": base, "bf16": make("precision=bf16-mixed")}
    for size in sorted({32, 64, 128, 256} - {base.ppo.micro_batch}):
        configs[f"micro_batch_{size}"] = make(f"ppo.micro_batch={size}")
    if not settings.quick:
        configs[f"threads_{other}"] = base
        if any(map(which, ("c++", "g++", "clang++"))):
            configs["compile"] = base
        else:
            print("variants: compile is left out, it needs a C++ compiler")
    trainers = {name: bench.make_trainer(config, run, env) for name, config in configs.items()}
    trainers["contiguous"].policy.to(memory_format=torch.contiguous_format)
    trainers["contiguous"].policy.encoder.register_forward_pre_hook(channels_first)
    if compiled := trainers.get("compile"):
        compiled.policy.compile()
        compiled.policy.decide = torch.compile(compiled.policy.decide)
    watch, first = bench.Stopwatch(), {}
    rates: dict[str, list[tuple[float, float]]] = {name: [] for name in trainers}
    for number in range(settings.rounds + 1):
        # Another one first each time: who follows whom matters to the caches.
        start = number % len(trainers)
        for name, trainer in [*trainers.items()][start:] + [*trainers.items()][:start]:
            torch.set_num_threads(other if name == f"threads_{other}" else settings.threads)
            trainer.collector.reset()
            collect = watch.lap(trainer.collector.collect)["total"]
            trainer.collector.finish(base.ppo.gamma, base.ppo.lam, None)
            update = watch.lap(lambda t=trainer: t.algorithm.update(t.buffer))["total"]
            if number:
                rates[name].append((count * base.ppo.epochs / update, count / collect))
            else:
                first[name] = collect + update
        print(f"variants: round {number} of {settings.rounds}", flush=True)
    torch.set_num_threads(settings.threads)
    env.close()
    updates, collects = ({name: [pair[i] for pair in pairs] for name, pairs in rates.items()}
                         for i in (0, 1))  # fmt: skip
    table = {
        name: {
            "samples_per_second": median(updates[name]),
            "decisions_per_second": median(collects[name]),
            "update_ratio": median(map(truediv, updates[name], updates["default"])),
            "collect_ratio": median(map(truediv, collects[name], collects["default"])),
            "first_seconds": first[name],
        }
        for name in rates
    }
    columns = ["variant", "update rows/s", "decisions/s", "x update", "x decisions", "1st round s"]
    cli.table(columns, [[name, *row.values()] for name, row in table.items()], "variants")
    faster = [name for name, row in table.items() if row["update_ratio"] > 1.1]
    print("updates more than 10 % faster than by default:", ", ".join(faster) or "none")
    metrics = {
        f"update_ratio_{name}": row["update_ratio"]
        for name, row in table.items()
        if name != "default"
    }
    return metrics, {"variants": table}


def validation(settings: Settings, run: Run) -> "Results":
    """What a validation in the background costs the training beside it; metrics and details."""
    from experiments.training import bench
    from ppo.training_run import make_validation
    from ppo.validation import Snapshot

    small = ("evaluation.validation_tracks=1", "evaluation.every=64") if settings.quick else ()
    config = bench.configuration("experiment=carracing_900", *small, quick=settings.quick)
    ours, beside = bench.Ours(config, run), make_validation(config)
    weights = {name: value.clone() for name, value in ours.policy.state_dict().items()}

    def stretch() -> None:
        until = ours.ticks + config.evaluation.every
        while ours.ticks < until:
            ours.advance()

    ours.advance()  # compiles
    beside.submit(Snapshot({}, weights))
    beside.judged(wait=True)  # starts its process
    seconds: dict[str, list[float]] = {"without": [], "with": []}
    for number in range(settings.stretches):
        for name in ("without", "with") if number % 2 else ("with", "without"):
            before = ours.ticks
            if name == "with":
                beside.submit(Snapshot({}, weights))
            lap = ours.watch.lap(stretch)["total"] / (ours.ticks - before)
            beside.judged(wait=True)
            seconds[name].append(lap)
        print(f"validation: turn {number + 1} of {settings.stretches}", flush=True)
    beside.close()
    ours.close()
    costs = [a / b - 1 for a, b in zip(seconds["with"], seconds["without"], strict=True)]
    cost = median(costs)
    print(
        f"validating {config.evaluation.validation_tracks} tracks every "
        f"{config.evaluation.every:,} ticks makes training {cost:.1%} slower"
    )
    return {"validation_cost": cost}, {"seconds_per_tick": seconds, "cost": costs}


def channels_first(_: Any, inputs: tuple[Any]) -> tuple[Any]:
    """Pixels in the order that the encoder turns into contiguous (n, channels, height, width)."""
    return (inputs[0].permute(0, 3, 1, 2).contiguous().permute(0, 2, 3, 1),)


PARTS = {"profile": profile, "variants": variants, "validation": validation}


def main() -> None:
    settings = cli.parse(Settings, DESCRIPTION)
    chosen = PARTS if settings.part == "all" else {settings.part: PARTS[settings.part]}
    if settings.quick:
        settings = replace(settings, rounds=1, stretches=1)
    from experiments.training import bench

    bench.measure("profile_ppo", chosen, settings, dict.fromkeys(PARTS, "ppo_profile"))


if __name__ == "__main__":
    cli.run_main(main)
