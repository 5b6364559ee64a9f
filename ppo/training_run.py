"""One training run from configuration to evaluated checkpoint, the work behind `train_ppo.py`."""

import dataclasses
import functools
from collections.abc import Iterable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import gymnasium

from common.display import progress_bar
from common.files import sha256_file
from common.seeding import derive
from common.torch.session import Command, Session
from envs.racing import RacingVectorEnv
from envs.racing import evaluate as evaluator
from envs.racing.reference.vector_env import ReferenceVectorEnv
from ppo import checkpoint
from ppo.config import PPOTrainConfig
from ppo.diagnostics import diagnose_evaluation
from ppo.display import summary
from ppo.evaluate import Driver, headline, load_policy, report, require_extra
from ppo.trainer import PPOTrainer
from ppo.validation import Validation

COMMAND = Command(
    script="train_ppo.py",
    room="ppo",
    budget="total_timesteps",
    unit="ticks",
    resumable=("resume", "total_timesteps", "device", "threads", "display", "video", "logger"),
    results=("result.json", "eval.json"),
    summary=summary,
)

TrainSession = Session[PPOTrainConfig]


def train(
    config: PPOTrainConfig, resolved: Mapping[str, Any], overrides: Iterable[str] = ()
) -> dict[str, Any]:
    """Train, then judge the best checkpoint; returns the numbers of the last line.

    `resolved` is `config` as plain data and `overrides` the command line's: a resume takes only
    those, and else the configuration of the run directory.
    """
    session = Session(COMMAND, config, overrides)
    config = session.config
    require_extra(config.env.preset)
    if config.evaluation.every:
        require_extra(config.validation_world[0])
    if config.evaluation.final_seeds():
        require_extra(config.test_world[0])
    manifest = {"evaluator": evaluator.EVALUATOR_HASH}
    with session.open(resolved, [config.env.preset], manifest):
        trainer = _train(session)
        seeds = config.evaluation.final_seeds()
        if config.video and not seeds:
            session.say("no video is made: evaluation.test_seeds is empty")
        counters = trainer.counters
        results = {
            "ticks": counters.ticks, "decisions": counters.decisions, "seconds": counters.seconds
        }  # fmt: skip
        if session.is_main and seeds:
            results |= _judge(session, trainer)
        return session.finish(results)


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


def _train(session: TrainSession) -> PPOTrainer:
    """Make everything that trains, resume it if asked, and train."""
    config, fabric = session.config, session.fabric
    about = {
        "seed": config.seed,
        "preset": config.env.preset,
        "tracks": config.env.tracks,
        "evaluator": evaluator.EVALUATOR_HASH,
    }
    with closing(make_env(config, fabric.global_rank)) as env:
        validation = make_validation(config)
        trainer = PPOTrainer(config, session.run, fabric, env, validation=validation, about=about)
        try:
            session.restore(trainer, _read_checkpoint)
            if session.resumed and config.env.preset == "gymnasium_carracing":
                session.say("the real CarRacing-v3 cannot be saved: episodes start afresh")
            session.fit(trainer)
        finally:
            if validation is not None:
                validation.close()
    return trainer


def _read_checkpoint(path: Path) -> dict[str, Any]:
    content = checkpoint.load(path)
    checkpoint.build_policy(content, path)  # for its checks
    return content


def _judge(session: TrainSession, trainer: PPOTrainer) -> dict[str, Any]:
    """Evaluate the best checkpoint (the last one if there was no validation), film it."""
    config, run = session.config, session.run
    path = trainer.best_checkpoint if config.evaluation.every else session.last_checkpoint
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
