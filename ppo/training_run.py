"""One training run from configuration to evaluated checkpoint, the work behind `train_ppo.py`."""

import dataclasses
import functools
from collections.abc import Iterable, Mapping
from contextlib import closing, nullcontext
from pathlib import Path
from typing import Any

import gymnasium
from lightning.fabric import Fabric

from common.config import check_growth, resumed
from common.display import Display, progress_bar
from common.errors import ConfigError, UserError
from common.files import sha256_file
from common.mirror import LoggerConfig, open_mirror
from common.runs import Run, run_name
from common.seeding import derive, seed_everything
from common.torch.device import check_processes, choose_device, set_threads
from envs.racing import RacingVectorEnv
from envs.racing import evaluate as evaluator
from envs.racing.reference.vector_env import ReferenceVectorEnv
from ppo import checkpoint
from ppo.config import PPOTrainConfig
from ppo.diagnostics import diagnose_evaluation
from ppo.display import make_display
from ppo.evaluate import Driver, headline, load_policy, report, require_extra
from ppo.trainer import Trainer
from ppo.validation import Validation

RESUMABLE = ("resume", "total_timesteps", "device", "threads", "display", "video", "logger")
"""Settings that a resumed run takes from the command line; the others are the run's own."""


def train(
    config: PPOTrainConfig, resolved: Mapping[str, Any], overrides: Iterable[str] = ()
) -> dict[str, Any]:
    """Train, then judge the best checkpoint; returns the numbers of the last line.

    `resolved` is `config` as plain data and `overrides` the command line's: a resume takes only
    those, and else the configuration of the run directory.
    """
    if config.resume is not None:
        run = Run.open(config.resume)
        before, config = run.config, resumed(run, config, overrides, RESUMABLE)
        check_growth("total_timesteps", before, config.total_timesteps)
    require_extra(config.env.preset)
    if config.evaluation.every:
        require_extra(config.validation_world[0])
    if config.evaluation.final_seeds():
        require_extra(config.test_world[0])
    threads = set_threads(config.threads, config.processes)
    fabric = make_fabric(config)
    seed_everything(config.seed)
    if config.resume is None:
        run = _new_run(config, resolved, overrides, fabric)
    with run.lock() if fabric.is_global_zero else nullcontext():
        return _train(config, run, fabric, threads)


def make_fabric(config: PPOTrainConfig) -> Fabric:
    """Device, precision and process group as configured, started."""
    device = choose_device(config.device)
    check_processes(config.processes, "train_ppo.py")
    several = config.processes > 1
    one = 1 if device.type != "cuda" else [device.index or 0]
    fabric = Fabric(
        accelerator=device.type,
        devices=config.processes if several else one,
        strategy="ddp" if several else "auto",
        precision=config.precision,
    )
    fabric.launch()
    return fabric


def make_env(config: PPOTrainConfig, rank: int = 0) -> gymnasium.vector.VectorEnv:
    """This process's share of the training worlds."""
    real = config.env.preset == "gymnasium_carracing"
    make = ReferenceVectorEnv if real else RacingVectorEnv
    return make(
        config.ppo.num_envs // config.processes,
        config.env,
        config.reward,
        endings=config.endings,
        seed=derive(config.seed, "env", rank) % 2**31,
        split="train",
    )


def make_validation(config: PPOTrainConfig) -> Validation | None:
    """What judges snapshots while training; None where it is switched off."""
    if not config.evaluation.every:
        return None
    env, direction = config.validation_world
    validate = functools.partial(
        _validate,
        seeds=config.evaluation.validation_seeds(),
        env=env,
        direction=direction,
        threads=config.evaluation.threads,
    )
    background = config.evaluation.background
    return Validation(validate, config.env.observation, config.ppo.network, background)


def _validate(driver: Driver, seeds: list[int], **options: Any) -> Mapping[str, Any]:
    return evaluator.evaluate(driver, seeds, **options).summary


def _train(config: PPOTrainConfig, run: Run, fabric: Fabric, threads: int) -> dict[str, Any]:
    display = make_display(config.total_timesteps, config.display, fabric.is_global_zero)
    display.say(f"run {run.path}")
    display.say(f"device {fabric.device}, {config.precision}, {threads} threads")
    with closing(make_env(config, fabric.global_rank)) as env:
        logger = config.logger if fabric.is_global_zero else LoggerConfig()
        mirror = open_mirror(logger, run.path, run.path.name, dataclasses.asdict(config))
        about = {
            "seed": config.seed,
            "preset": config.env.preset,
            "tracks": config.env.tracks,
            "evaluator": evaluator.EVALUATOR_HASH,
        }
        validation = make_validation(config)
        trainer = Trainer(
            config, run, fabric, env, validation=validation, mirror=mirror, about=about
        )
        try:
            if config.resume is not None:
                _restore(trainer, display)
            with display:
                trainer.fit(display)
        finally:
            mirror.close()
            if validation is not None:
                validation.close()
    seeds = config.evaluation.final_seeds()
    if config.video and not seeds:
        display.say("no video is made: evaluation.test_seeds is empty")
    results = {
        "run": str(run.path),
        "ticks": trainer.counters.ticks,
        "decisions": trainer.counters.decisions,
        "seconds": trainer.counters.seconds,
    }
    if fabric.is_global_zero and seeds:
        results |= _judge(config, run, trainer)
    if fabric.is_global_zero:
        run.write_json("result.json", results)
    return results


def _judge(config: PPOTrainConfig, run: Run, trainer: Trainer) -> dict[str, Any]:
    """Evaluate the best checkpoint (the last one if there was no validation), film it."""
    best = trainer.best_checkpoint
    path = best if config.evaluation.every else trainer.last_checkpoint
    driver = load_policy(path)
    seeds = config.evaluation.final_seeds()
    env, direction = config.test_world
    with progress_bar(f"driving {len(seeds)} test tracks") as progress:
        evaluation = evaluator.evaluate(
            driver,
            seeds,
            env=env,
            direction=direction,
            threads=config.evaluation.threads,
            progress=progress,
        )
    diagnoses = diagnose_evaluation(evaluation)
    report(evaluation.summary, f"{path.name} on {env}, tracks {config.evaluation.test_seeds}")
    for diagnosis in diagnoses:
        if diagnosis.failed:
            print(diagnosis.warning)
    run.write_json(
        "eval.json",
        {
            "checkpoint": f"checkpoints/{path.name}",
            "checkpoint_sha256": sha256_file(path),
            "about": driver.about,
            "diagnostics": [dataclasses.asdict(diagnosis) for diagnosis in diagnoses],
            **evaluation.to_dict(),
        },
    )
    results = headline(evaluation.summary)
    if config.video:
        from envs.racing.show.video import record_video  # late: loads an encoder

        video = run.videos / f"track{seeds[0]}.mp4"
        with progress_bar("filming") as progress:
            record_video(
                driver,
                video,
                env=env,
                track_seed=seeds[0],
                direction=direction,
                progress=progress,
            )
        results["video"] = str(video)
    return results


def _new_run(
    config: PPOTrainConfig, resolved: Mapping[str, Any], overrides: Iterable[str], fabric: Fabric
) -> Run:
    path = None
    if fabric.is_global_zero:
        name = run_name(config.name, "ppo", config.env.preset, f"s{config.seed}")
        extra = {"evaluator": evaluator.EVALUATOR_HASH, "device": str(fabric.device)}
        extra["overrides"] = [text.lstrip("+") for text in overrides]
        seeds = {"root": config.seed}
        path = str(Run.create(config.run_root, name, resolved, seeds=seeds, extra=extra).path)
    return Run(Path(fabric.broadcast(path)))


def _restore(trainer: Trainer, display: Display) -> None:
    """Go on from last.pt; from the start if the run was killed before it wrote one."""
    path, rows = trainer.last_checkpoint, 0
    if path.exists():
        content = checkpoint.load(path)
        if "training" not in content:
            raise ConfigError(f"{path} holds weights only and cannot be resumed")
        checkpoint.build_policy(content, path)  # its checks are all that is wanted
        try:
            trainer.load(content)
            rows = content["training"]["rows"]
        except UserError as error:
            raise UserError(f"{path}: {error}") from None
        except (LookupError, RuntimeError, ValueError, TypeError, AttributeError) as error:
            raise UserError(
                f"{path} cannot be resumed, it is damaged or of another configuration: {error!r}"
            ) from error
    ticks = trainer.counters.ticks
    if trainer.fabric.is_global_zero:
        run = trainer.run
        run.truncate_metrics(rows)
        run.note_resume(dataclasses.asdict(trainer.config))
        if ticks < trainer.config.total_timesteps:
            run.discard("result.json", "eval.json")
    display.say(f"resuming after {ticks:,} ticks")
    if trainer.config.env.preset == "gymnasium_carracing":
        display.say("the real CarRacing-v3 cannot be saved: episodes start afresh")
