"""How fast the engine is, against Gymnasium's CarRacing-v3 in the same run."""

import os
import time
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import Any

from common import cli
from common.records import read_record, write_record
from common.runs import Run, cpu_maker, cpu_model, timestamped
from common.schema import config_class

DESCRIPTION = """Time the engine against Gymnasium's CarRacing-v3 (extra parity), per core.

    python scripts/bench_env.py              the whole study
    python scripts/bench_env.py quick=true   the ratio only

Both drive the same actions on the same tracks, one tick per frame, RGB frames of 96 x 96 with the
renderer that the parity suite measures, in turns, so that what slows the machine slows both. Our
time includes everything of `RacingVectorEnv.step`, the resets of whole episodes among it.

Frames per second belong to one kind of CPU, the ratio nearly so. record=true adds a row for this
kind to experiments/records/speed.json, or replaces it, and leaves the rows of other CPUs alone."""


@config_class
class Settings:
    """The settings of the command.

    Attributes:
        quick: the ratio only, in under 50 seconds.
        rounds: alternations of the two environments.
        num_envs: our batch in the comparison.
        reference_steps: CarRacing-v3 steps per round.
        record: keep as experiments/records/speed.json.
        run_root: where the run directory goes.
    """

    quick: bool = False
    rounds: int = 7
    num_envs: int = 32
    reference_steps: int = 400
    record: bool = False
    run_root: str = "runs"

    def __post_init__(self) -> None:
        cli.check_ranges(self, rounds=(1, 100), num_envs=(1, 4096), reference_steps=(10, 1000))


class Ours:
    """Our batch under the scripted driver; only the environment's own time is counted."""

    def __init__(self, num_envs: int, **options: Any) -> None:
        import numpy as np

        from envs.racing import EnvConfig, RacingVectorEnv
        from envs.racing.drivers import CentrelineDriver

        self.env = RacingVectorEnv(num_envs, EnvConfig(preset="carracing", **options), seed=1)
        self.driver = CentrelineDriver()
        self.carry = self.driver.initial(num_envs)
        _, self.info = self.env.reset()
        self.is_first = np.ones(num_envs, bool)
        self.step()

    def step(self) -> float:
        """Seconds of one batched step."""
        observation = self.driver.spec.gather(self.info, self.env.num_envs)
        action, self.carry = self.driver.act(self.carry, observation, self.is_first)
        start = time.perf_counter()
        _, _, terminated, truncated, self.info = self.env.step(action)
        seconds = time.perf_counter() - start
        self.is_first = terminated | truncated
        return seconds

    def frames_per_second(self, steps: int) -> float:
        return steps * self.env.num_envs / sum(self.step() for _ in range(steps))

    def close(self) -> None:
        self.env.close()


class Reference:
    """The real CarRacing-v3 under the actions that our driver chose on the same track."""

    def __init__(self, steps: int, seed: int = 10_000) -> None:
        import numpy as np

        from envs.racing import EnvConfig, RacingVectorEnv
        from envs.racing.drivers import CentrelineDriver
        from envs.racing.reference.drive import make_reference

        env = RacingVectorEnv(1, EnvConfig(preset="carracing"), track_seeds=[seed])
        driver = CentrelineDriver()
        carry, is_first = driver.initial(1), np.ones(1, bool)
        _, info = env.reset()
        self.actions = []
        for _ in range(steps):
            action, carry = driver.act(carry, driver.spec.gather(info, 1), is_first)
            self.actions.append(action[0].astype(np.float64))
            _, _, terminated, truncated, info = env.step(action)
            is_first = terminated | truncated
        env.close()
        self.env, self.seed = make_reference(), seed

    def frames_per_second(self) -> float:
        self.env.reset(seed=self.seed)
        start = time.perf_counter()
        for action in self.actions:
            self.env.step(action)
        return len(self.actions) / (time.perf_counter() - start)


def compare(settings: Settings) -> dict[str, Any]:
    """Both in turns; medians over rounds, and the ratio's range."""
    import numpy as np

    ours, theirs = Ours(settings.num_envs), Reference(settings.reference_steps)
    steps = max(1, 32_000 // settings.num_envs)  # a whole episode of 32 worlds a round
    ours.frames_per_second(steps)
    rounds = [
        (ours.frames_per_second(steps), theirs.frames_per_second()) for _ in range(settings.rounds)
    ]
    ours.close()
    mine, reference = np.array(rounds).T
    ratios = mine / reference
    return {
        "ratio_per_core": float(np.median(ratios)),
        "ratio_low": float(ratios.min()),
        "ratio_high": float(ratios.max()),
        "ours": float(np.median(mine)),
        "reference": float(np.median(reference)),
    }


def parts(num_envs: int) -> dict[str, float]:
    """Microseconds per frame of each part of a step, beside a copy of the output buffer."""
    import numpy as np

    ours = Ours(num_envs)
    env, engine = ours.env, ours.env.engine
    for _ in range(100):
        ours.step()
    actions = np.zeros((num_envs, 1, 3))
    other = np.empty_like(env.frames)

    def microseconds(task, times: int = 300) -> float:
        task()
        start = time.perf_counter()
        for _ in range(times):
            task()
        return (time.perf_counter() - start) / times / num_envs * 1e6

    measured = {
        "copy_of_output": microseconds(lambda: np.copyto(other, env.frames)),
        "draw": microseconds(lambda: engine.draw(env.frames)),
        "physics_and_reward": microseconds(lambda: engine.step(actions)),
        "telemetry": microseconds(engine.telemetry),
    }
    ours.close()
    return measured


def resets(num_envs: int, **options: Any) -> dict[str, float]:
    """Step times in ms of a batch whose episodes end at different times."""
    import numpy as np

    ours = Ours(num_envs, max_ticks=200, **options)
    # Different first lengths spread the ends, as in training.
    ours.env.engine.cars["tick"] = np.arange(num_envs)[:, None] * 200 // num_envs
    seconds = np.array([ours.step() for _ in range(1000)]) * 1e3
    ours.close()
    return {
        "median_ms": float(np.median(seconds)),
        "p99_ms": float(np.percentile(seconds, 99)),
        "max_ms": float(seconds.max()),
        "mean_ms": float(seconds.mean()),
    }


def this_cpu() -> dict[str, Any]:
    """Model and maker of the CPU, and the kind that kernels are compiled for, by LLVM's name."""
    from llvmlite.binding import get_host_cpu_features, get_host_cpu_name

    return {
        "cpu": cpu_model(),
        "maker": cpu_maker(),
        "kind": get_host_cpu_name(),
        "avx512": get_host_cpu_features().get("avx512f", False),
    }


def with_row(rows: list[dict[str, Any]], new: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows with `new` in the place of the one of its kind of CPU, or at the end."""
    kinds = [row["kind"] for row in rows]
    if new["kind"] not in kinds:
        return [*rows, new]
    return [new if row["kind"] == new["kind"] else row for row in rows]


def study(settings: Settings) -> dict[str, Any]:
    """Everything beyond the ratio."""
    details: dict[str, Any] = {"parts_us_per_frame": parts(settings.num_envs)}
    cli.table(["part", "us per frame"], list(details["parts_us_per_frame"].items()))

    details["resets"] = {
        "shared pool (default)": resets(32),
        "a fresh track per episode": resets(32, track_pool=0),
    }
    columns = ["tracks, 200-tick episodes", "median ms", "p99 ms", "max ms", "mean ms"]
    cli.table(columns, [[name, *row.values()] for name, row in details["resets"].items()])

    scaling = {}
    for num_envs in (1, 2, 8, 32, 128, 512, 1024):
        ours = Ours(num_envs)
        scaling[num_envs] = ours.frames_per_second(max(20, 32_000 // num_envs))
        ours.close()
    details["frames_per_second_by_envs"] = scaling
    cli.table(["environments", "frames/s"], list(scaling.items()))

    threads = {}
    for count in sorted({1, 2, os.cpu_count() or 1}):
        ours = Ours(256, threads=count)
        threads[count] = ours.frames_per_second(200)
        ours.close()
    details["frames_per_second_by_threads"] = threads
    cli.table(["threads (256 environments)", "frames/s"], list(threads.items()))

    variants = {}
    for name, options in {
        "RGB 96": {},
        "grey 96": {"grey": True},
        "grey 96, stack 4, repeat 4": {"grey": True, "frame_stack": 4, "action_repeat": 4},
        "RGB 64": {"size": 64},
        "grey 64": {"size": 64, "grey": True},
    }.items():
        ours = Ours(32, **options)
        variants[name] = ours.frames_per_second(500)
        ours.close()
    details["observations_per_second_by_variant"] = variants
    cli.table(["variant", "observations/s"], list(variants.items()))
    return details


def main() -> None:
    settings = cli.parse(Settings, DESCRIPTION)
    if settings.quick:
        settings = replace(settings, rounds=min(settings.rounds, 3))
    cpu = this_cpu()
    wide = "AVX-512" if cpu["avx512"] else "no AVX-512"
    print(f"CPU: {cpu['cpu']} by {cpu['maker']}, kind {cpu['kind']}, {wide}")
    run = Run.create(settings.run_root, timestamped("bench_env"), asdict(settings), seeds={})
    details = {} if settings.quick else study(settings)
    metrics = compare(settings)
    run.write_json("details.json", {"cpu": cpu} | details)
    if settings.record:
        earlier = read_record("speed") or {}
        rows = earlier.get("details", {}).get("cpus", [])
        row = cpu | {"measured": f"{datetime.now(UTC):%Y-%m-%d}"} | metrics
        write_record(
            "speed",
            command=cli.command("scripts/bench_env.py"),
            settings=asdict(settings),
            metrics=metrics,
            details={"cpus": with_row(rows, row)} | details,
        )
    cli.finish(metrics | {"cpu": cpu["kind"]}, run)


if __name__ == "__main__":
    cli.run_main(main)
