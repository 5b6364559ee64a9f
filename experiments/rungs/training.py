"""Training a rung and judging it by the probes, as far as that has not been done."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from common.errors import UserError
from common.files import read_json, sha256_file, to_plain
from common.runs import ROOT, Run, flattened
from experiments.rungs.settings import Settings, arguments, configuration
from probes import runs as probes
from probes.bundle import Memory


def train(name: str, seed: int, settings: Settings) -> Path:
    """Train a rung, or go on with it; returns its run directory."""
    path = Path(settings.run_root) / "ladder" / settings.scale / f"{name}-s{seed}"
    if (path / "manifest.json").is_file():
        _check_same(path, name, settings)
        if (path / "result.json").is_file():
            print(f"{path}: already trained")
            return path
        command = [f"resume={path}"]
    else:
        if path.exists():
            _remove_stillborn(path)
        command = [*arguments(name, settings.scale), f"seed={seed}", *settings.overrides]
        command += [f"run_root={settings.run_root}", f"data.root={settings.data_root}"]
    command = [str(ROOT / "train_world_model.py"), *command, f"threads={settings.threads}"]
    done = subprocess.run([sys.executable, *command])
    if done.returncode:
        line = " ".join(command)
        raise UserError(f"{line} ended with {done.returncode}; what it printed says why")
    if not (path / "result.json").is_file():
        raise UserError(f"{path}: another ladder trains this rung; start again when it has ended")
    return path


def _check_same(path: Path, name: str, settings: Settings) -> None:
    """Refuse a run of other settings than are asked for now: its numbers would pass for theirs."""
    run = Run.open(path)
    asked_for = flattened(to_plain(configuration(name, settings.scale, settings.overrides)))
    free = ("seed", "threads", "processes", "device", "run_root", "name", "resume", "display",
            "data.root", "warm_start", "logger", "rung")  # fmt: skip
    trained_with = flattened(run.config)
    differ = [
        f"{key} {trained_with.get(key)} instead of {value}"
        for key, value in asked_for.items()
        if trained_with.get(key) != value
        and not any(f"{key}.".startswith(f"{one}.") for one in free)
    ]
    if differ:
        raise UserError(
            f"{path} was trained with other settings ({', '.join(differ[:5])}): move it away, or "
            "give the same overrides"
        )


def _remove_stillborn(path: Path) -> None:
    """Remove what is left of a run that was killed before it began."""
    if any(path.glob("checkpoints/*")):
        raise UserError(f"{path} is no run, for it has no manifest.json, yet checkpoints: move it")
    shutil.rmtree(path)


def judge(path: Path, settings: Settings, memory: Memory) -> dict[str, dict[str, Any]]:
    """Run the probes that a rung has not been judged by yet; returns their results by name."""
    checkpoint, directory = path / "checkpoints" / "final.pt", path / "probes"
    kept = {probe: directory / f"{probe}.json" for probe in settings.probes}
    asked = probes.Settings(
        checkpoint=str(checkpoint), into=str(directory), data_root=settings.data_root,
        clips=settings.clips, film=settings.film, threads=settings.threads,
    )  # fmt: skip
    expected = {"checkpoint_sha256": sha256_file(checkpoint), "asked": probes.asked(asked)}

    def judged(file: Path) -> bool:
        found = read_json(file) if file.is_file() else {}
        return all(found.get(key) == value for key, value in expected.items())

    missing = [probe for probe, file in kept.items() if not judged(file)]
    if missing:
        probes.judge(missing, asked, memory)
    return {probe: read_json(file) for probe, file in kept.items()}
