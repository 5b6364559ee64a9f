"""Trains a rung and judges it by the probes; finished parts are skipped."""

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
    """Train a rung, or resume its training; returns its run directory."""
    path = Path(settings.run_root) / "ladder" / settings.scale / f"{name}-s{seed}"
    if (path / "manifest.json").is_file():
        _check_same(path, name, settings)
        if (path / "result.json").is_file():
            print(f"{path}: already trained")
            return path
        command = [f"resume={path}"]
    else:
        if path.exists():
            _remove_leftovers(path)
        command = [*arguments(name, settings.scale), f"seed={seed}", *settings.overrides]
        command += [f"run_root={settings.run_root}", f"data.root={settings.data_root}"]
    command = [str(ROOT / "train_world_model.py"), *command, f"threads={settings.threads}"]
    process = subprocess.run([sys.executable, *command])
    if process.returncode:
        line = " ".join(command)
        raise UserError(f"{line} ended with {process.returncode}; see its messages above")
    if not (path / "result.json").is_file():
        raise UserError(
            f"{path}: another process is training this rung; start again when it has finished"
        )
    return path


def _check_same(path: Path, name: str, settings: Settings) -> None:
    """Raise `UserError` if the run at `path` was trained with other settings than the current ones.

    Its results would otherwise be reported as results of the current settings.
    """
    run = Run.open(path)
    requested = flattened(to_plain(configuration(name, settings.scale, settings.overrides)))
    free = ("seed", "threads", "processes", "device", "run_root", "name", "resume", "display",
            "data.root", "warm_start", "logger", "rung")  # fmt: skip
    trained_with = flattened(run.config)
    differ = [
        f"{key} {trained_with.get(key)} instead of {value}"
        for key, value in requested.items()
        if trained_with.get(key) != value
        and not any(f"{key}.".startswith(f"{one}.") for one in free)
    ]
    if differ:
        raise UserError(
            f"{path} was trained with other settings ({', '.join(differ[:5])}): move it away, or "
            "use the same overrides"
        )


def _remove_leftovers(path: Path) -> None:
    """Remove the files of a run that was killed before it started training."""
    if any(path.glob("checkpoints/*")):
        raise UserError(
            f"{path} has checkpoints but no manifest.json, so it is not a run: move it away"
        )
    shutil.rmtree(path)


def judge(path: Path, settings: Settings, memory: Memory) -> dict[str, dict[str, Any]]:
    """Run the probes that have no result for this rung yet; returns all results by probe."""
    checkpoint, directory = path / "checkpoints" / "final.pt", path / "probes"
    files = {probe: directory / f"{probe}.json" for probe in settings.probes}
    probe_settings = probes.Settings(
        checkpoint=str(checkpoint), into=str(directory), data_root=settings.data_root,
        clips=settings.clips, film=settings.film, threads=settings.threads,
    )  # fmt: skip
    expected = {
        "checkpoint_sha256": sha256_file(checkpoint),
        "asked": probes.result_settings(probe_settings),
    }

    def judged(file: Path) -> bool:
        result = read_json(file) if file.is_file() else {}
        return all(result.get(key) == value for key, value in expected.items())

    missing = [probe for probe, file in files.items() if not judged(file)]
    if missing:
        probes.judge(missing, probe_settings, memory)
    return {probe: read_json(file) for probe, file in files.items()}
