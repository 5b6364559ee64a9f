"""Run directories: everything that a run writes, and everything needed to repeat it.

<root>/<name>/config.yaml     the resolved configuration
              manifest.json   code, versions, seeds, machine, command line; its presence makes
                              the directory a run
              metrics.jsonl   one row per report
              checkpoints/  videos/
"""

import fcntl
import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import yaml
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

import dreamracer
from common import files
from common.errors import ConfigError, UserError

ROOT = dreamracer.ROOT
"""The clone that these packages are imported from."""

SOURCE_PATTERNS = [
    *("dreamracer.py", "train_*.py", "scripts/*.py", "conf/**/*.yaml"),
    *(f"{room}/**/*.py" for room in dreamracer.PACKAGES),
]
"""Files in the content hash of the code. Tests, records and documents do not change a run."""

NO_SOURCE = ["conf/autoresearch/*.yaml"]
"""Campaign files are left out of the hash. Their settings are in the overrides of each run, and a
new campaign changes no run."""

_REPORTED_PACKAGES = ["torch", "lightning", "numpy", "numba", "scipy", "gymnasium", "h5py", "av"]
_REPORTED_PACKAGES += ["hydra-core", "opencv-python-headless"]
_THREAD_VARIABLES = [f"{kind}_NUM_THREADS" for kind in ("OMP", "MKL", "OPENBLAS", "NUMBA")]

MIN_FREE_BYTES = 100 << 20
_MAX_SUFFIX = 10_000


class Run:
    """One run directory. Make it with `create`, continue it with `open`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.checkpoints = path / "checkpoints"
        self.videos = path / "videos"
        self._metrics = path / "metrics.jsonl"

    @classmethod
    def create(
        cls,
        root: str | os.PathLike,
        name: str,
        config: Mapping[str, Any],
        *,
        seeds: Mapping[str, int],
        extra: Mapping[str, Any] | None = None,
    ) -> "Run":
        """Make `<root>/<name>/` with its configuration and manifest.

        If the name exists, the new one gets `-2`, `-3`, ..., so two runs never share a directory.
        `extra` is added to the manifest (evaluator hash, data hashes). Raises `ConfigError` with
        the path if it cannot be written to or its disk is almost full.
        """
        if not os.fspath(root).strip():
            raise ConfigError("the root of the run directories is empty; name one, such as runs")
        settings = OmegaConf.to_yaml(OmegaConf.create(dict(config)))
        manifest = _manifest(seeds, extra or {})
        _check_text(root, name, settings, manifest)
        path = _claim(Path(root), name)
        run = cls(path)
        try:
            run.checkpoints.mkdir()
            run.videos.mkdir()
            run.write_text("config.yaml", settings)
            run.write_json("manifest.json", manifest)
        except OSError as error:
            raise _unwritable(path, error) from None
        return run

    @classmethod
    def open(cls, path: str | os.PathLike) -> "Run":
        """The run at `path`, to continue or read it; `ConfigError` if there is none."""
        if not os.fspath(path).strip():
            raise ConfigError("the run directory is empty; name one, such as runs/ppo/<run>")
        path = Path(path)
        if not path.is_dir():
            raise ConfigError(f"{path}: no such run directory")
        missing = [n for n in ("config.yaml", "manifest.json") if not (path / n).is_file()]
        if missing:
            inside = sorted(p.parent.name for p in path.glob("*/manifest.json"))
            hint = f"; runs inside it: {', '.join(inside[:5])}" if inside else ""
            raise ConfigError(f"{path} is not a run directory: no {' and no '.join(missing)}{hint}")
        return cls(path)

    @property
    def config(self) -> dict[str, Any]:
        """The resolved configuration, as plain data; `ConfigError` if its file is damaged."""
        path = self.path / "config.yaml"
        try:
            config = OmegaConf.to_container(OmegaConf.create(path.read_text(encoding="utf-8")))
        except (yaml.YAMLError, UnicodeDecodeError, OmegaConfBaseException) as error:
            raise ConfigError(f"{path} is damaged: {error}") from None
        except AssertionError:  # OmegaConf raises it for a file that is one number
            config = None
        if not isinstance(config, dict) or not config:
            raise ConfigError(f"{path} is damaged: it holds no settings")
        return config

    @property
    def manifest(self) -> dict[str, Any]:
        """The content of `manifest.json`."""
        return files.read_json(self.path / "manifest.json")

    def log(self, row: Mapping[str, Any]) -> None:
        """Append `row` to metrics.jsonl; a killed process loses at most the row it was writing."""
        files.append_jsonl(self._metrics, row)

    def metrics(self) -> list[dict[str, Any]]:
        """All rows logged so far."""
        return files.read_jsonl(self._metrics)

    def truncate_metrics(self, count: int) -> int:
        """Remove the rows that were logged after a checkpoint, before a resume from it.

        `count` is the number of rows when the checkpoint was written. Returns the number of rows
        that were removed.
        """
        rows = self.metrics()
        if count < len(rows):
            text = "".join(files.json_line(row) for row in rows[:count])
            files.atomic_write_text(self._metrics, text)
        return max(len(rows) - count, 0)

    def note_resume(self, config: Mapping[str, Any]) -> None:
        """Record a resume in the manifest, with the code and the changed settings.

        `config` is the whole configuration from now on. It replaces config.yaml, so the next
        resume uses it too. `resume` itself is not a setting of a run.
        """
        before = self.config
        old = flattened(before)
        after = files.to_plain({**config, "resume": before.get("resume")}, finite=False)
        new = flattened(after)
        changed = {name: value for name, value in new.items() if old.get(name) != value}
        manifest = self.manifest
        now = datetime.now(UTC).isoformat(timespec="seconds")
        note = {"created": now, "code": code_state(), "changed": changed}
        manifest["resumes"] = [*manifest.get("resumes", []), note]
        self.write_json("manifest.json", manifest)
        if changed:
            self.write_text("config.yaml", OmegaConf.to_yaml(OmegaConf.create(after)))

    def discard(self, *names: str) -> None:
        """Remove files of the run that will no longer be correct."""
        for name in names:
            (self.path / name).unlink(missing_ok=True)

    def write_json(self, name: str, obj: Any) -> Path:
        """Write `obj` to `<run>/<name>`, all or nothing; returns the path."""
        files.write_json(self.path / name, obj)
        return self.path / name

    def write_text(self, name: str, text: str) -> Path:
        """Write `text` to `<run>/<name>`, all or nothing; returns the path."""
        files.atomic_write_text(self.path / name, text)
        return self.path / name

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Lock the run for this process while the body runs. The lock ends with the process.

        Raises `ConfigError` if another process holds the lock. Temporary files of killed writers
        are removed.
        """
        with open(self.path / ".lock", "a+", encoding="utf-8") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                file.seek(0)
                holder = file.read().strip() or "unknown"
                raise ConfigError(
                    f"{self.path} is being written by another process (pid {holder}); "
                    "stop it first or start a new run"
                ) from None
            file.truncate(0)
            file.write(str(os.getpid()))
            file.flush()
            files.remove_temporaries(self.path)
            yield


def timestamped(room: str, *labels: str | int) -> str:
    """A run's name by convention: `ppo/2026-11-29_14-30-00_race_s1` (local time)."""
    now = datetime.now().strftime("%Y-%m-%d_%H-%M-%S")
    return f"{room}/{'_'.join([now, *map(str, labels)])}"


def run_name(name: str, room: str, *labels: str | int) -> str:
    """The path of a run below the root of all runs: `<room>/<name>`, so `runs/ppo/*` finds it.

    An empty name is made from the time and `labels`. A name with a slash is the whole path, such
    as `ladder/P5` or `./P5`.
    """
    if not name:
        return timestamped(room, *labels)
    return name if "/" in name else f"{room}/{name}"


def code_state(root: Path = ROOT) -> dict[str, Any]:
    """`commit` and `clean` from git (None outside of git), and `sha256` of the source files."""
    # A copy of the tree may lie inside another repository, whose commit says nothing about it.
    top = _git(root, "rev-parse", "--show-toplevel")
    is_top = top is not None and Path(top).resolve() == root.resolve()
    status = _git(root, "status", "--porcelain") if is_top else None
    return {
        "commit": _git(root, "rev-parse", "--verify", "--quiet", "HEAD") if is_top else None,
        "clean": None if status is None else not status,
        "sha256": files.sha256_tree(root, SOURCE_PATTERNS, NO_SOURCE),
    }


def machine() -> dict[str, Any]:
    """Processor, cores, platform, thread settings, and the accelerator if torch is in use."""
    available = getattr(os, "sched_getaffinity", None)
    facts: dict[str, Any] = {
        "cpu": cpu_model(),
        "cores": os.cpu_count(),
        "cores_available": len(available(0)) if available else os.cpu_count(),
        "platform": platform.platform(),
        "threads": {name: os.environ.get(name) for name in _THREAD_VARIABLES},
    }
    torch = sys.modules.get("torch")  # this function never imports torch
    if torch is not None:
        facts["threads"]["torch"] = torch.get_num_threads()
        if torch.cuda.is_available():
            facts["accelerator"] = torch.cuda.get_device_name()
    return facts


def versions() -> dict[str, str | None]:
    """Versions of python and the packages that numbers depend on; None where not installed."""
    packages = {name: _version(name) for name in _REPORTED_PACKAGES}
    return {"python": platform.python_version(), **packages}


def _manifest(seeds: Mapping[str, int], extra: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": [Path(sys.argv[0]).name, *sys.argv[1:]],
        "code": code_state(),
        "versions": versions(),
        "seeds": dict(seeds),
        "machine": machine(),
        **extra,
    }


def flattened(config: Mapping[str, Any], group: str = "") -> dict[str, Any]:
    """`config` with dotted keys."""
    flat: dict[str, Any] = {}
    for name, value in config.items():
        if isinstance(value, Mapping):
            flat |= flattened(value, f"{group}{name}.")
        else:
            flat[f"{group}{name}"] = value
    return flat


def _claim(root: Path, name: str) -> Path:
    """Make a new directory that no other process uses; mkdir either makes it or fails."""
    parts = Path(name).parts
    if not parts or Path(name).is_absolute() or ".." in parts:
        raise ConfigError(f"run name '{name}' must be a relative path below {root}")
    base = root / name
    try:
        base.parent.mkdir(parents=True, exist_ok=True)
        check_disk(base.parent, MIN_FREE_BYTES, "a run")
        for number in range(1, _MAX_SUFFIX):
            path = base if number == 1 else base.with_name(f"{base.name}-{number}")
            try:
                path.mkdir()
                return path
            except FileExistsError:
                continue
    except OSError as error:
        raise _unwritable(base, error) from None
    raise ConfigError(f"{base}: {_MAX_SUFFIX} runs of this name exist; choose another name")


def _check_text(root: str | os.PathLike, name: str, *written: Any) -> None:
    """Raise `ConfigError` if the run's name or its settings cannot be written in this locale.

    In an ASCII locale, Python reads other letters of a command line as bytes that UTF-8 cannot
    hold.
    """
    try:
        os.fsencode(f"{root}/{name}")
        f"{root}/{name}".encode()
        json.dumps(written, ensure_ascii=False, default=str).encode()
    except UnicodeEncodeError as error:
        letters = ascii(error.object[error.start : error.end])
        raise ConfigError(
            f"a setting has letters that this locale ({sys.getfilesystemencoding()}) cannot read "
            f"({letters}); use plain letters, or set PYTHONUTF8=1"
        ) from None


def check_disk(directory: Path, least: int, what: str) -> None:
    """Raise `ConfigError` if the disk has fewer than `least` free bytes for `what`.

    `directory` is on that disk; it need not exist yet.
    """
    there = directory.absolute()
    while not there.exists():
        there = there.parent
    free = shutil.disk_usage(there).free
    if free < least:
        raise ConfigError(
            f"{directory}: only {free >> 20} MiB free on this disk, {what} needs at least "
            f"{-(-least >> 20)} MiB; free some or choose another directory"
        )


def _unwritable(path: Path, error: OSError) -> ConfigError:
    return ConfigError(f"cannot write the run directory {path}: {error.strerror or error}")


def _git(root: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(root), *arguments], capture_output=True, text=True, timeout=20
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def cpu_model() -> str:
    """The processor's name as the system gives it, such as "AMD EPYC"."""
    return _cpu_fact("model name") or platform.processor() or platform.machine()


def cpu_maker() -> str:
    """The processor's maker: AMD, Intel, or what the system says."""
    vendor = _cpu_fact("vendor_id") or platform.machine()
    return {"AuthenticAMD": "AMD", "GenuineIntel": "Intel"}.get(vendor, vendor)


def _cpu_fact(name: str) -> str | None:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith(name):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return None


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def checkpoint_in(path: str | os.PathLike, names: Sequence[str]) -> Path:
    """`path` itself, or the first of `names` in the checkpoints of the run directory it names.

    A relative path that is not there is looked for in the clone too, so `experiments/checkpoints/`
    can be named from any folder. Raises `UserError` for a directory that has none of `names`.
    """
    path = Path(path)
    if not path.exists() and (ROOT / path).exists():
        path = ROOT / path
    if not path.is_dir():
        return path
    for name in names:
        if (path / "checkpoints" / name).exists():
            return path / "checkpoints" / name
    raise UserError(f"{path}: a directory without checkpoints/{' or '.join(names)}; name a file")
