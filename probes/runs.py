"""Judges one checkpoint by several probes and writes their results and records."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from common import cli
from common.files import atomic_write_bytes, sha256_file, to_plain, write_json
from common.records import RECORDS, write_record
from common.runs import Run, run_name
from common.schema import config_class
from common.torch.device import set_threads
from probes.bundle import Memory, ProbeConfig, Result, clips_of, data_of, run_probe
from probes.clips import CLIPS, RULES, committed, listing
from probes.display import show

RECORDED_SETTINGS = ("context", "horizon", "seed", "dataset", "split")


@config_class
class Settings(ProbeConfig):
    """The settings of the command.

    Attributes:
        checkpoint: a world model: a checkpoint file or a run.
        threads: threads of torch; 0 uses all available.
        run_root: folder in which the run directory is created.
        name: name of the run directory <run_root>/probes/<name>; if empty, the time is used.
        into: write the results into this directory and create no run.
        quick: 8 clips, no film; takes less than 50 s.
        record: write experiments/records/probe_<probe>.json.
    """

    checkpoint: str = ""
    threads: int = 0
    run_root: str = "runs"
    name: str = ""
    into: str = ""
    quick: bool = False
    record: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.threads < 0:
            raise ValueError(f"threads is at least 0, not {self.threads}")
        if self.quick and self.clips is not None:
            raise ValueError("quick=true uses 8 clips: leave out one of quick and clips")
        if self.record and (self.quick or self.clips is not None):
            raise ValueError("record=true needs every clip: leave out quick and clips")


def judge(
    probes: Sequence[str], settings: Settings, memory: Memory | None = None
) -> dict[str, Any]:
    """Run probes and return the numbers of the last line. For `memory` see `run_probe`."""
    from rssm import checkpoint, load_world_model  # late: torch takes seconds to start

    set_threads(settings.threads)
    memory = {} if memory is None else memory
    path = checkpoint.resolve(settings.checkpoint)
    model = load_world_model(path)
    config = settings
    if settings.quick:
        config = replace(settings, quick=False, clips=8, film=False)
    for name in probes:
        data_of(
            RULES[name], config, check=False
        )  # first: missing data leaves no run directory behind
    content = sha256_file(path)
    directory = _directory(probes, settings, path, content)
    line: dict[str, Any] = {"directory": str(directory)}
    label = path.stem if path.stem != "final" else path.absolute().parents[1].name
    for name in probes:
        if config.clips is not None and config.clips > RULES[name].clips:
            most = RULES[name].clips
            print(
                f"{name}: clips={config.clips}, but its rule selects at most {most}; using {most}"
            )
        started = time.perf_counter()
        result = run_probe(name, model, config, directory, label, memory)
        seconds = time.perf_counter() - started
        about = {"checkpoint": path.name, "checkpoint_sha256": content}
        about |= {"asked": result_settings(config)}
        about |= {f"trained_{key}": value for key, value in model.about.items()}
        everything = about | {"seconds": seconds} | result.to_dict()
        write_json(directory / f"{name}.json", everything)
        show(result)
        if settings.record:
            write_probe_record(result, directory, settings, about)
        line |= {f"{name}_{key}": value for key, value in headline(result).items()}
    return line


def result_settings(config: ProbeConfig) -> dict[str, Any]:
    """The settings that a probe's result depends on, as plain data."""
    names = ("context", "horizon", "horizons", "dataset", "split", "train", "clips", "samples")
    names += ("seed",)
    return to_plain({name: getattr(config, name) for name in names})


def list_clips(settings: Settings) -> dict[str, Any]:
    """Print the clips that every rule selects; with record=true, also write them as a record."""
    rows, details = [], {}
    for name, rule in RULES.items():
        data, clips = clips_of(rule, settings)
        details[name] = listed = listing(clips, rule, data)
        texts = {None: "no committed list", True: "as committed", False: "not as committed"}
        scenarios = ", ".join(f"{name} {count}" for name, count in listed["scenarios"].items())
        text = texts[committed(name, listed)]
        rows.append([name, len(clips), listed["tracks"], scenarios, text])
    cli.table(["probe", "clips", "tracks", "scenarios", ""], rows)
    numbers = {f"{name}_clips": len(listed["clips"]) for name, listed in details.items()}
    if settings.record:
        write_record(
            CLIPS,
            command=cli.command("-m probes"),
            settings={name: getattr(settings, name) for name in RECORDED_SETTINGS},
            metrics=numbers,
            details=details,
        )
    return numbers


def write_probe_record(
    result: Result, directory: Path, settings: Settings, about: Mapping[str, Any]
) -> None:
    """Write a probe's record with its pictures."""
    record = f"probe_{result.name}"
    pictures = {f"{record}{kind}.png": f"{result.name}{kind}.png" for kind in ("", "_frames")}
    for target, source in pictures.items():
        atomic_write_bytes(RECORDS / target, (directory / source).read_bytes())
    clips = {key: value for key, value in result.clips.items() if key != "clips"}
    write_record(
        record,
        command=cli.command("-m probes"),
        settings={name: getattr(settings, name) for name in RECORDED_SETTINGS} | dict(about),
        metrics=headline(result),
        artifacts=list(pictures),
        details={
            **result.numbers,
            "verdict": result.verdict,
            "clips": clips,
            "curves": result.curves,
        },
    )


def _directory(probes: Sequence[str], settings: Settings, path: Path, content: str) -> Path:
    """The directory for the results: `settings.into`, or that of a new run."""
    if settings.into:
        return Path(settings.into)
    run = Run.create(
        settings.run_root,
        run_name(settings.name, "probes", "-".join(probes) if len(probes) < 3 else "all"),
        to_plain(vars(settings)) | {"probes": list(probes)},
        seeds={"root": settings.seed},
        extra={"checkpoint": str(path), "checkpoint_sha256": content},
    )
    print(f"run {run.path}")
    return run.path


def headline(result: Result) -> dict[str, Any]:
    """The most important numbers of a probe."""
    numbers, pictures = result.numbers, result.numbers["pictures"]
    line = {
        "passed": result.passed,
        "clips": len(result.clips["clips"]),
        "ssim": pictures["ssim"]["model"]["mean"],
        "psnr": pictures["psnr"]["model"]["mean"],
    }
    if "camera" in numbers:
        camera = numbers["camera"]["imagined"]
        line |= {f"{axis}_slope": camera[f"{axis}_slope"]["mean"] for axis in ("yaw", "forward")}
        line["yaw_final_share"] = camera["yaw_final_share"]["mean"]
    return line
