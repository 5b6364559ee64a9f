"""How fast PPO trains, against Stable-Baselines3 in the same run."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from statistics import median
from typing import TYPE_CHECKING, Any, Literal

from common import cli
from common.errors import UserError
from common.runs import Run
from common.schema import config_class

if TYPE_CHECKING:
    from gymnasium import Env

    from experiments.training.bench import Parts, Results

DESCRIPTION = """Time PPO against Stable-Baselines3 (extras parity and bench).

    python scripts/bench_ppo.py                  both parts: hours, most of them the other's
    python scripts/bench_ppo.py part=speed       both train the same network, in turns
    python scripts/bench_ppo.py part=learning    both by their defaults to the same progress
    python scripts/bench_ppo.py quick=true       both parts at their smallest, no times of learning

speed: NatureCNN on RGB frames of 96 x 96, one tick per decision, the same batches and epochs;
Stable-Baselines3 drives Gymnasium's CarRacing-v3, we the same game in our engine.
learning: wall time of training alone until the locked evaluator (env=carracing, deterministic)
measures `target_progress`. Validations are few, so a time is that of the first one that passes;
`learning_at_least` counts Stable-Baselines3's last one that did not.
The score that CarRacing-v3 writes into its pictures is blackened before Stable-Baselines3 sees
them: our engine, in which both are validated, never draws it."""

BATCH = 256
NATURE = {"channels": (32, 64, 64), "kernels": (8, 4, 3), "strides": (4, 2, 1), "hidden": (512,)}
"""The network of Mnih et al. 2015, which Stable-Baselines3's CnnPolicy has."""

Point = Mapping[str, float]
"""A validation: seconds of training before it, ticks, progress and native_return."""


@config_class
class Settings:
    """The settings of the command.

    Attributes:
        part: one part of the study, or all.
        quick: everything at its smallest.
        rounds: measured turns of speed.
        num_envs: environments in speed and of SB3.
        num_steps: steps per rollout in speed.
        target_progress: laps, what learning is for.
        validation_tracks: from seed 1000 up.
        validate_every: s of our training between two.
        budget: engine ticks that we may take.
        limit: times our time that SB3 may take.
        validations: of SB3 within its limit.
        threads: torch's CPU threads, of both sides.
        record: keep as experiments/records/ppo_speed.json and ppo_learning.json.
        run_root: where the run directory goes.
    """

    part: Literal["all", "speed", "learning"] = "all"
    quick: bool = False
    rounds: int = 7
    num_envs: int = 8
    num_steps: int = 128
    target_progress: float = 0.9
    validation_tracks: int = 20
    validate_every: float = 30.0
    budget: int = 4_000_000
    limit: float = 10.0
    validations: int = 8
    threads: int = 2
    record: bool = False
    run_root: str = "runs"

    def __post_init__(self) -> None:
        cli.check_ranges(
            self,
            rounds=(1, 100),
            num_envs=(1, 256),
            num_steps=(2, 4096),
            target_progress=(-1, 1),
            validation_tracks=(1, 1000),
            validate_every=(0, 86_400),
            budget=(1, 10**9),
            limit=(1, 1000),
            validations=(1, 100),
            threads=(1, 256),
        )
        rows = self.num_envs * self.num_steps
        if rows > BATCH and rows % BATCH:
            raise ValueError(
                f"num_envs x num_steps, {rows} rows, is no multiple of the batch of {BATCH}: the "
                "two sides would cut it into different minibatches"
            )
        if self.record and self.quick:
            raise ValueError("record=true keeps the study: leave out quick")


def shortened(settings: Settings) -> Settings:
    """The same at its smallest; its target of driving backwards is reached at once."""
    return replace(
        settings, rounds=1, num_envs=2, num_steps=16, target_progress=-1.0,
        validation_tracks=1, validate_every=0.0, validations=1,
    )  # fmt: skip


def without_score(env: "Env") -> "Env":
    """CarRacing-v3 with the score in its pictures blackened, as every policy here is shown them."""
    from gymnasium.wrappers import TransformObservation

    from envs.racing.config import ObservationSpec
    from envs.racing.pixels.adapter import FrameAdapter

    # With a stack of one, every frame is shown as an episode's first.
    show = FrameAdapter(ObservationSpec(), mask_score=True).reset
    return TransformObservation(env, show, env.observation_space)


class StableBaselines:
    """Stable-Baselines3's PPO on Gymnasium's CarRacing-v3, driven rollout by rollout."""

    def __init__(self, num_envs: int, workers: bool = False, **options: Any) -> None:
        from stable_baselines3 import PPO
        from stable_baselines3.common.env_util import make_vec_env
        from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv

        from envs.racing.config import ObservationSpec
        from experiments.training.bench import SEED, Stopwatch

        kind = SubprocVecEnv if workers else DummyVecEnv
        env = make_vec_env(
            "CarRacing-v3", num_envs, seed=SEED, wrapper_class=without_score, vec_env_cls=kind
        )
        self.model = PPO("CnnPolicy", env, seed=SEED, device="cpu", **options)
        self.policy, self.spec = self.model.policy, ObservationSpec()
        self.watch = Stopwatch()
        self.watch.watch(self.model.env, "step", "env")
        self.watch.watch(self.policy, "forward", "inference")
        self.watch.watch(self.model, "train", "update")

    @property
    def ticks(self) -> int:
        """Engine ticks so far."""
        return self.model.num_timesteps

    @property
    def driver(self) -> Any:
        """The policy as the evaluator takes it."""
        return self

    def initial(self, n: int, seeds: Any = None) -> None:
        """See `common.rl.policy.Policy`: it remembers nothing."""

    def act(
        self, carry: None, observation: Any, is_first: Any, deterministic: bool = True
    ) -> tuple[Any, None]:
        """See `common.rl.policy.Policy`; observations are uint8 (n, 96, 96, 3)."""
        return self.model.predict(observation, deterministic=deterministic)[0], carry

    def advance(self) -> None:
        """One rollout and its update."""
        rollout = self.model.n_steps * self.model.n_envs
        self.model.learn(rollout, log_interval=None, reset_num_timesteps=False)

    def loss(self) -> Any:
        """Something to differentiate that depends on all that a row's update computes."""
        rows = next(self.model.rollout_buffer.get(1))
        parts = self.policy.evaluate_actions(rows.observations, rows.actions)
        return sum(x.sum() for x in parts)

    def close(self) -> None:
        self.model.env.close()


def speed(settings: Settings, run: Run) -> "Results":
    """Steps/s of both on the same work, in turns; metrics and details."""
    from envs.racing import EnvConfig, RewardConfig
    from experiments.training import bench
    from ppo.config import PolicyConfig, PPOConfig, PPOTrainConfig

    steps = settings.num_envs * settings.num_steps
    batch = min(BATCH, steps)
    network = PolicyConfig(**NATURE, heads="shared", pedals="two", squash="clip")
    ppo = PPOConfig(
        num_envs=settings.num_envs, num_steps=settings.num_steps, epochs=4,
        minibatches=steps // batch, network=network,
    )  # fmt: skip
    pool = {"track_pool": bench.QUICK_POOL} if settings.quick else {}
    config = PPOTrainConfig(
        env=EnvConfig(preset="carracing", **pool),
        reward=RewardConfig.native(), ppo=ppo, seed=bench.SEED, device="cpu",
    )  # fmt: skip
    same = {"n_steps": settings.num_steps, "batch_size": batch, "n_epochs": 4}
    sides: dict[str, Any] = {
        "ours": bench.Ours(config, run),
        "sb3": StableBaselines(settings.num_envs, **same),
    }
    if not settings.quick:
        sides["sb3_workers"] = StableBaselines(settings.num_envs, workers=True, **same)
    laps: dict[str, list[Parts]] = {name: [] for name in sides}
    for number in range(settings.rounds + 1):  # the first compiles kernels and fills caches
        for name, side in sides.items():
            lap = side.watch.lap(side.advance)
            if number:
                laps[name].append(lap)
        print(f"speed: round {number} of {settings.rounds}", flush=True)
    table = {}
    for name, side in sides.items():
        total = sum(lap["total"] for lap in laps[name])
        parts = {part: sum(lap[part] for lap in laps[name]) / total
                 for part in ("env", "inference", "update")}  # fmt: skip
        table[name] = {
            "steps_per_second": median(steps / lap["total"] for lap in laps[name]),
            **{f"{part}_share": share for part, share in parts.items()},
            "rest_share": 1 - sum(parts.values()),
            "parameters": sum(p.numel() for p in side.policy.parameters()),
            "mflop_per_row": sum(bench.flops(side.loss).values()) / 1e6,
        }
        side.close()
    columns = ["side", "steps/s", "env", "inference", "update", "rest", "parameters", "MFLOP/row"]
    cli.table(columns, [[name, *row.values()] for name, row in table.items()], "speed")
    metrics: dict[str, Any] = {}
    for name in list(laps)[1:]:
        ratios = [theirs["total"] / mine["total"]
                  for mine, theirs in zip(laps["ours"], laps[name], strict=True)]  # fmt: skip
        suffix = name.removeprefix("sb3")
        metrics |= {f"ratio{suffix}": median(ratios), f"ratio{suffix}_low": min(ratios),
                    f"ratio{suffix}_high": max(ratios)}  # fmt: skip
    metrics |= {name: row["steps_per_second"] for name, row in table.items()}
    return metrics | {"env_share": table["ours"]["env_share"]}, {"sides": table, "rounds": laps}


def learning(settings: Settings, run: Run) -> "Results":
    """Training time of both, by their defaults, until the target; metrics and details."""
    from experiments.training import bench

    budget = ("experiment=carracing_900", f"total_timesteps={settings.budget}")
    ours = bench.Ours(bench.configuration(*budget, quick=settings.quick), run)
    curves = {"ours": curve(ours, settings, settings.validate_every, budget=settings.budget)}
    ours.close()
    curves["sb3"] = []
    if curves["ours"][-1]["progress"] >= settings.target_progress:
        limit = settings.limit * curves["ours"][-1]["seconds"]
        small = {"n_steps": 16, "batch_size": 16, "n_epochs": 1} if settings.quick else {}
        theirs = StableBaselines(settings.num_envs, **small)
        curves["sb3"] = curve(theirs, settings, limit / settings.validations, limit=limit)
        theirs.close()
    if settings.quick:  # a fraction of a second: no figure that would mean anything
        return {"learning_works": bool(curves["ours"] and curves["sb3"])}, {"curves": curves}
    return verdict(curves["ours"], curves["sb3"], settings), {"curves": curves}


def curve(
    side: Any,
    settings: Settings,
    every: float,
    *,
    limit: float = float("inf"),
    budget: float = float("inf"),
) -> list[dict[str, float]]:
    """Train until the target, `limit` seconds or `budget` ticks; validate `every` seconds.

    Seconds are those of training.
    """
    from envs.racing.evaluate import evaluate

    seeds = range(1000, 1000 + settings.validation_tracks)
    points: list[dict[str, float]] = []
    seconds, due = 0.0, every
    while True:
        seconds += side.watch.lap(side.advance)["total"]
        over = seconds >= limit or side.ticks >= budget
        if seconds < due and not over:
            continue
        due = seconds + every
        summary = evaluate(side.driver, seeds, env="carracing").summary
        measured = {name: summary[name]["mean"] for name in ("progress", "native_return")}
        points.append({"seconds": seconds, "ticks": side.ticks, **measured})
        print(
            f"learning: {type(side).__name__} {seconds:.0f} s, {side.ticks:,} ticks, "
            f"progress {measured['progress']:.3f}", flush=True,
        )  # fmt: skip
        if over or measured["progress"] >= settings.target_progress:
            return points


def verdict(
    ours: Sequence[Point], theirs: Sequence[Point], settings: Settings
) -> dict[str, float | None]:
    """Times to the target and their ratio; None for what was not reached.

    `learning_at_least` is the ratio that is certain: of the time that Stable-Baselines3 was given
    where it did not reach the target, of its last validation below it where it did.
    """

    def reached(points: Sequence[Point]) -> float | None:
        passed = points and points[-1]["progress"] >= settings.target_progress
        return points[-1]["seconds"] if passed else None

    mine, other = reached(ours), reached(theirs)
    below = [p["seconds"] for p in theirs if p["progress"] < settings.target_progress]
    return {
        "learning_seconds": mine,
        "learning_seconds_sb3": other,
        "learning_ratio": other / mine if mine and other else None,
        "learning_at_least": (below[-1] if below else 0.0) / mine if mine and theirs else None,
        "progress_sb3": max((p["progress"] for p in theirs), default=None),
    }


def require_baselines() -> None:
    """Raise `UserError` unless Stable-Baselines3 and CarRacing-v3 are installed."""
    from ppo.evaluate import require_extra

    if find_spec("stable_baselines3") is None:
        raise UserError(
            "Stable-Baselines3 is not installed; install the extra: pip install -e '.[bench]'"
        )
    require_extra("gymnasium_carracing")


PARTS = {"speed": speed, "learning": learning}


def main() -> None:
    settings = cli.parse(Settings, DESCRIPTION)
    chosen = PARTS if settings.part == "all" else {settings.part: PARTS[settings.part]}
    require_baselines()
    if settings.quick:
        settings = shortened(settings)
    from experiments.training import bench

    bench.measure("bench_ppo", chosen, settings, {name: f"ppo_{name}" for name in PARTS})


if __name__ == "__main__":
    cli.run_main(main)
