"""One training run of a world model, from configuration to checkpoint."""

from __future__ import annotations

import dataclasses
import os
import warnings
from collections.abc import Iterable, Mapping
from contextlib import closing, nullcontext
from dataclasses import field
from pathlib import Path
from typing import Annotated, Any, Literal

import lightning
import torch
from lightning.pytorch.callbacks import Callback
from pydantic import Field

from common.config import check_growth, resumed
from common.display import Display
from common.errors import ConfigError, UserError
from common.mirror import LoggerConfig, open_mirror
from common.runs import Run, timestamped
from common.schema import config_class
from common.seeding import derive, seed_everything
from common.torch.device import check_processes, choose_device, set_threads, tune_allocator
from rssm import checkpoint
from rssm.config import ModelConfig, OptimiserConfig, RungConfig, ValidationConfig
from rssm.data import DataConfig, Passes, Reader, choose_heads
from rssm.model.heads import HeadConfig
from rssm.model.world_model import WorldModel
from rssm.objective import LossConfig
from rssm.readout import ReadoutConfig, fit_heads
from rssm.training import Recorder, Training, loader
from rssm.validation import Validator

RESUMABLE = ("resume", "updates", "device", "threads", "display", "logger")
"""Settings that a resumed run takes from the command line; the others are the run's own."""


@config_class
class WorldModelTrainConfig:
    """Everything that `train_world_model.py` can be told.

    Attributes:
        rung: the experiment of the ladder that this is, if any.
        scale: of a rung's budget: laptop goes with rssm=xs, record with rssm=record.
        updates: budget, in optimiser steps.
        seed: root of all random numbers.
        device: auto, cpu, cuda, cuda:<index> or mps.
        precision: Lightning's name, such as 32-true or bf16-mixed.
        threads: torch's CPU threads; 0 takes what this process may use.
        processes: ranks that share each batch, started by torchrun.
        warm_start: a world-model checkpoint or run whose fitting weights are taken over.
        run_root, name: where the run directory is made; an empty name is made from the time.
        resume: a run directory to go on with.
        log_every, checkpoint_every: updates.
    """

    network: ModelConfig = field(default_factory=ModelConfig)
    heads: HeadConfig = field(default_factory=HeadConfig)
    loss: LossConfig = field(default_factory=LossConfig)
    optimiser: OptimiserConfig = field(default_factory=OptimiserConfig)
    data: DataConfig = field(default_factory=DataConfig)
    readout: ReadoutConfig = field(default_factory=ReadoutConfig)
    validation: ValidationConfig = field(default_factory=ValidationConfig)
    logger: LoggerConfig = field(default_factory=LoggerConfig)
    rung: RungConfig = field(default_factory=RungConfig)
    scale: Literal["laptop", "record"] = "laptop"
    updates: Annotated[int, Field(ge=1)] = 2000
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 1
    device: str = "auto"
    precision: Literal["32-true", "bf16-mixed", "16-mixed"] = "32-true"
    threads: Annotated[int, Field(ge=0, le=1024)] = 0
    processes: Annotated[int, Field(ge=1)] = 1
    warm_start: str | None = None
    run_root: str = "runs"
    name: str = ""
    resume: str | None = None
    log_every: Annotated[int, Field(ge=1)] = 20
    checkpoint_every: Annotated[int, Field(ge=0)] = 500
    display: bool = True

    def __post_init__(self) -> None:
        if self.loss.image_every > self.data.length:
            raise ValueError(
                f"loss.image_every is at most data.length, the {self.data.length} rows of a "
                f"window, not {self.loss.image_every}"
            )
        if self.network.decode_motion and self.readout.updates:
            raise ValueError(
                "network.decode_motion draws what the heads say, so they stay as the decoder knows "
                "them: readout.updates=0"
            )


def train(
    config: WorldModelTrainConfig, resolved: Mapping[str, Any], overrides: Iterable[str] = ()
) -> dict[str, Any]:
    """Train a world model; returns the numbers of the last line.

    `resolved` is `config` as plain data and `overrides` the command line's: a resume takes only
    those, and else the configuration of the run directory.
    """
    if config.resume is not None:
        run = Run.open(config.resume)
        before, config = run.config, resumed(run, config, overrides, RESUMABLE)
        check_growth("updates", before, config.updates)
    tune_allocator()
    threads = set_threads(config.threads, config.processes)
    device = choose_device(config.device)
    check_processes(config.processes, "train_world_model.py")
    seed_everything(config.seed)
    data = config.data.open(config.data.train)
    held_out = config.data.open(config.data.val) if config.validation.every else None
    rank = int(os.environ.get("RANK", "0"))
    main = rank == 0
    display = Display(config.updates, "updates", summary, config.display, main)
    # Whatever can be refused is refused before there is a run directory.
    reader = Reader(data, *choose_heads(config.heads, data))
    model = make_model(config, reader)
    passes = Passes(reader, config.data, config.seed, config.updates, rank, config.processes)
    validate = None
    if held_out:
        validate = Validator(held_out, config.validation, config.seed, config.loss)
        Reader(held_out, *model.heads.targets)
    warmed: list[str] = []
    resumable = config.resume is not None and _last(run).exists()
    if config.warm_start is not None and not resumable:
        warmed = checkpoint.warm_start(model, config.warm_start).lines()
    hashes = {"train": data.sha256} | ({"val": held_out.sha256} if held_out else {})
    if config.resume is None:
        run = _new_run(config, resolved, overrides, hashes, device) if main else None
    else:
        _check_data(run, config, hashes)
    display.say(f"run {run.path}" if run else "")
    display.say(f"device {device}, {config.precision}, {threads} threads")
    display.say(f"data {data.path}: {data.rows:,} rows, {len(data.episodes):,} episodes")
    for name, damage in data.skipped.items():
        display.say(f"skipped {name}: {damage}")
    for name in data.unindexed:
        display.say(f"left out {name}: the index of {data.path} has no line for it")
    for line in warmed:
        display.say(line)
    with run.lock() if main else nullcontext():
        return _train(config, run, model, passes, validate, device, display)


def _train(
    config: WorldModelTrainConfig,
    run: Run | None,
    model: WorldModel,
    passes: Passes,
    validate: Validator | None,
    device: torch.device,
    display: Display,
) -> dict[str, Any]:
    data = passes.reader.data
    training = Training(
        model, config.loss, config.optimiser, config.seed, config.updates, config.data.passes,
        rejects=(run.path if run else Path(config.run_root)) / "nonfinite",
    )  # fmt: skip
    spent = _restore(training, run, config, display) if config.resume is not None else 0.0
    about = {"seed": config.seed, "dataset": config.data.dataset, "data_sha256": data.sha256}
    logger = config.logger if run else LoggerConfig()
    where = run.path if run else Path(config.run_root)
    with closing(open_mirror(logger, where, where.name, dataclasses.asdict(config))) as mirror:
        recorder = Recorder(
            run, passes, mirror,
            every=config.log_every,
            save_every=config.checkpoint_every,
            validate_every=config.validation.every if validate else 0,
            validate=validate,
            say=display.show,
            about=about,
            spent=spent,
        )  # fmt: skip
        with display:
            started = training.update
            trainer = make_trainer(config, device, config.updates - started, [recorder])
            if started < config.updates:
                with warnings.catch_warnings():
                    warnings.filterwarnings("ignore", message=".*does not have many workers.*")
                    trainer.fit(training, loader(passes, started))
        if run and config.readout.updates:
            display.say(f"fitting the heads: {config.readout.updates:,} small updates")
            fitted = fit_heads(
                model, passes.reader, config.data.length, config.loss, config.readout, config.seed,
                trained=training.update * config.data.batch * config.data.length,
            )  # fmt: skip
            row = {"updates": training.update}
            row |= {f"readout/{name}": value for name, value in fitted.items()}
            if validate:
                row |= {f"val/{name}": value for name, value in validate(model.eval()).items()}
            run.log(row)
            mirror.log(row, training.update)
    if run is None:
        return {}
    final = run.checkpoints / "final.pt"
    checkpoint.save(final, model, about | {"updates": training.update})
    rows = [row for row in run.metrics() if "val/loss" in row]
    results = {"run": str(run.path), "updates": training.update, "checkpoint": str(final)}
    results["seconds"] = recorder.seconds
    if rows:
        results |= {k.removeprefix("val/"): v for k, v in rows[-1].items() if k.startswith("val/")}
    run.write_json("result.json", results)
    return results


def make_model(config: WorldModelTrainConfig, reader: Reader) -> WorldModel:
    """An untrained model with the reader's heads and target statistics."""
    torch.manual_seed(derive(config.seed, "weights"))
    try:
        model = WorldModel(
            config.network, reader.telemetry, reader.off, regression=config.heads.regression
        )
    except ValueError as error:
        raise ConfigError(f"network: {error}") from None
    model.heads.set_statistics(reader.statistics())
    return model


def make_trainer(
    config: WorldModelTrainConfig, device: torch.device, updates: int, callbacks: list[Callback]
) -> lightning.Trainer:
    """Lightning's trainer, for `updates` more optimiser steps; files and logs are ours."""
    several = config.processes > 1
    one = 1 if device.type != "cuda" else [device.index or 0]
    return lightning.Trainer(
        accelerator=device.type,
        devices=config.processes if several else one,
        strategy="ddp" if several else "auto",
        precision=config.precision,
        max_steps=updates,
        accumulate_grad_batches=config.data.passes,
        callbacks=callbacks,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        use_distributed_sampler=False,
    )


def summary(row: Mapping[str, Any], time_left: str) -> str:
    """One line of the numbers that tell how training goes."""
    labels = {
        "frames_per_second": "{:,.0f} frames/s",
        "train/loss": "loss {:.1f}",
        "train/image": "image {:.1f}",
        "train/kl": "KL {:.2f}",
        "val/loss": "validation loss {:.1f}",
        "val/psnr": "PSNR {:.2f} dB",
        "val/psnr_open": "open loop {:.2f} dB",
    }
    parts = [form.format(row[name]) for name, form in labels.items() if name in row]
    return "  ".join(filter(None, [parts[0], time_left, *parts[1:]])) if parts else time_left


def _new_run(
    config: WorldModelTrainConfig,
    resolved: Mapping[str, Any],
    overrides: Iterable[str],
    hashes: Mapping[str, str],
    device: torch.device,
) -> Run:
    name = config.name or timestamped("rssm", config.data.dataset, f"s{config.seed}")
    extra = {"data": dict(hashes), "device": str(device)}
    extra["overrides"] = [text.lstrip("+") for text in overrides]
    return Run.create(config.run_root, name, resolved, seeds={"root": config.seed}, extra=extra)


def _last(run: Run) -> Path:
    return run.checkpoints / "last.pt"


def _check_data(run: Run, config: WorldModelTrainConfig, hashes: Mapping[str, str]) -> None:
    """A run goes on with the data it began with, or it would not end as if never interrupted."""
    began = run.manifest.get("data", {})
    for split, found in hashes.items():
        if began.get(split, found) != found:
            raise UserError(
                f"{run.path} was trained on another {config.data.dataset} than the one that is now "
                f"in {config.data.root} ({split} split): bring that back, or begin a new run with "
                f"warm_start={_last(run)}"
            )


def _restore(
    training: Training, run: Run, config: WorldModelTrainConfig, display: Display
) -> float:
    """Go on from last.pt; from the start if the run was killed before it wrote one.

    Returns the seconds that led there.
    """
    path, rows, seconds = _last(run), 0, 0.0
    if path.exists():
        content = checkpoint.load(path)
        if "training" not in content:
            raise UserError(f"{path} holds weights only and cannot be resumed")
        weights = checkpoint.build(content, path).state_dict()
        try:
            training.model.load_state_dict(weights)
            training.resume(content["training"])
            rows, seconds = content["training"]["rows"], content["training"]["seconds"]
        except (LookupError, RuntimeError, TypeError) as error:
            raise UserError(f"{path} is of another configuration: {error}") from None
    if training.global_rank == 0:
        run.truncate_metrics(rows)
        run.note_resume(dataclasses.asdict(config))
        if training.update < training.updates:
            run.discard("result.json")
    display.say(f"resuming after {training.update:,} updates")
    return seconds
