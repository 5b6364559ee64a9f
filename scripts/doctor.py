"""Check an installation: what works here, what is missing and how to get it.

    python scripts/doctor.py

Prints one line per check and exits with 1 if something required is missing. The standard library
is all it needs itself, so that it can speak about a broken installation too.
"""

import io
import os
import platform
import re
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

SETUP = "make setup"
LEAST_PYTHON = (3, 11)
LEAST_FREE = 100 << 20
COMFORTABLE_FREE = 5 << 30


@dataclass
class Finding:
    """One line of the report; `remedy` says how to mend what is not ok."""

    status: str  # ok, absent (an extra not asked for), warning or failed
    subject: str
    detail: str
    remedy: str = ""


def ok(subject: str, detail: str) -> Finding:
    return Finding("ok", subject, detail)


def warning(subject: str, detail: str, remedy: str) -> Finding:
    return Finding("warning", subject, detail, remedy)


def failed(subject: str, detail: str, remedy: str) -> Finding:
    return Finding("failed", subject, detail, remedy)


def check_python() -> list[Finding]:
    version = platform.python_version()
    if sys.version_info < LEAST_PYTHON:
        return [failed("python", version, "install Python 3.11 or newer, then make setup PYTHON=")]
    return [ok("python", f"{version} on {platform.platform()}")]


def check_packages() -> list[Finding]:
    """Every declared dependency against the lock; those of extras may be absent."""
    import tomllib  # here, so that an older Python still gets to say that it is too old

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    locked = locked_versions()
    findings = [_package(requirement, locked) for requirement in project["dependencies"]]
    for extra, requirements in project["optional-dependencies"].items():
        found = [_package(requirement, locked, extra) for requirement in requirements]
        if all(finding.status == "absent" for finding in found):
            names = ", ".join(finding.subject for finding in found)
            found = [replace(found[0], subject=f"extra {extra}", detail=f"without {names}")]
        findings += found
    try:
        metadata.distribution(project["name"])
        findings.append(ok(project["name"], "installed, its packages can be imported anywhere"))
    except metadata.PackageNotFoundError:
        findings.append(failed(project["name"], "not installed", f"{SETUP} (or pip install -e .)"))
    return findings


def check_torch() -> list[Finding]:
    import torch

    if torch.cuda.is_available():
        device = f"cuda ({torch.cuda.get_device_name()})"
    else:
        device = "mps" if torch.backends.mps.is_available() else "cpu"
    ones = torch.ones(64, 64, device=device.split()[0])
    if (ones @ ones).sum().item() != 64**3:
        return [failed("torch", f"wrong product on {device}", "reinstall torch or its driver")]
    threads = torch.get_num_threads()
    return [ok("torch", f"{torch.__version__}, device {device}, {threads} threads")]


def check_numba() -> list[Finding]:
    import numba

    @numba.njit(nogil=True, cache=True)
    def total(n: int) -> int:
        result = 0
        for i in range(n):
            result += i
        return result

    if total(10) != 45:
        return [failed("numba", "a compiled loop gives a wrong sum", "reinstall numba")]
    cache = Path(total.stats.cache_path)
    if not os.access(cache, os.W_OK):
        return [warning("numba", f"cannot write its cache {cache}", "set NUMBA_CACHE_DIR")]
    return [ok("numba", f"compiles, caches in {cache}")]


def check_carracing() -> list[Finding]:
    """The real Gymnasium environment, which the parity suite and evaluations compare with."""
    import gymnasium

    remedy = "pip install -e '.[parity]'"
    try:
        env = gymnasium.make("CarRacing-v3")
    except Exception as error:  # gymnasium's own class for a missing dependency has moved before
        return [Finding("absent", "CarRacing-v3", str(error), remedy)]
    try:
        env.reset(seed=0)
        frame = env.step(env.action_space.sample())[0]
    finally:
        env.close()
    return [ok("CarRacing-v3", f"runs, frames of {frame.shape}")]


def check_video() -> list[Finding]:
    """Encodes a tiny H.264 film, as the videos of runs are."""
    import av
    import numpy as np

    try:
        with av.open(io.BytesIO(), "w", format="mp4") as film:
            stream = film.add_stream("h264", rate=30)
            stream.width = stream.height = 64
            stream.pix_fmt = "yuv420p"
            encoder = stream.codec_context.codec.name
            for shade in range(4):
                picture = np.full((64, 64, 3), 60 * shade, np.uint8)
                film.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
            film.mux(stream.encode(None))
    except (av.error.FFmpegError, ValueError) as error:
        return [failed("video", f"no H.264 encoder: {error}", "reinstall PyAV from its wheel")]
    return [ok("video", f"H.264 by {encoder}")]


def check_disk() -> list[Finding]:
    runs = ROOT / "runs"
    directory = runs if runs.is_dir() else ROOT
    try:
        with tempfile.TemporaryFile(dir=directory):
            pass
    except OSError as error:
        return [failed("disk", f"cannot write {directory}: {error.strerror}", "mend its rights")]
    free = shutil.disk_usage(directory).free
    detail = f"{free / 2**30:.1f} GiB free below {directory}"
    if free < LEAST_FREE:
        return [failed("disk", detail, "free some space: a run needs 100 MiB to start")]
    if free < COMFORTABLE_FREE:
        return [warning("disk", detail, "replay and checkpoints of a long run may need 5 GiB")]
    return [ok("disk", detail)]


def check_threads() -> list[Finding]:
    available = getattr(os, "sched_getaffinity", lambda _: range(os.cpu_count() or 1))
    usable = len(available(0))
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
    chosen = ", ".join(f"{name}={os.environ[name]}" for name in names if name in os.environ)
    return [
        ok("threads", f"{usable} of {os.cpu_count()} cores usable; {chosen or 'no limits set'}")
    ]


CHECKS: tuple[Callable[[], list[Finding]], ...] = (
    check_python,
    check_packages,
    check_torch,
    check_numba,
    check_carracing,
    check_video,
    check_disk,
    check_threads,
)


def examine(check: Callable[[], list[Finding]]) -> list[Finding]:
    """What `check` finds; a check that cannot even run is a finding, not a crash."""
    subject = check.__name__.removeprefix("check_")
    try:
        return check()
    except Exception as error:
        return [failed(subject, f"{type(error).__name__}: {error}", SETUP)]


def locked_versions() -> dict[str, str]:
    """Normalised package name to version, from requirements.lock."""
    lines = (ROOT / "requirements.lock").read_text().splitlines()
    matches = (re.match(r"([A-Za-z0-9._-]+)==([^;\s]+)", line) for line in lines)
    return {_normalised(match[1]): match[2] for match in matches if match}


def _package(requirement: str, locked: dict[str, str], extra: str = "") -> Finding:
    name = re.match(r"[A-Za-z0-9._-]+", requirement)[0]
    if "[" in requirement:  # gymnasium[box2d] brings a package of the same name as its extra
        name = requirement.partition("[")[2].partition("]")[0]
    try:
        version = metadata.version(name)
    except metadata.PackageNotFoundError:
        if extra:
            return Finding("absent", name, "not installed", f"pip install -e '.[{extra}]'")
        return failed(name, "not installed", SETUP)
    tested = locked.get(_normalised(name))
    if tested and version.partition("+")[0] != tested:
        return warning(name, f"{version}, tested with {tested}", SETUP)
    return ok(name, version)


def _normalised(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def main() -> int:
    arguments = sys.argv[1:]
    if {"--help", "-h"} & set(arguments):
        print(__doc__.strip())
        return 0
    if arguments:
        print(f"error: '{arguments[0]}': doctor.py takes no arguments", file=sys.stderr)
        return 2
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # no window for the trial of CarRacing
    counts = {"ok": 0, "absent": 0, "warning": 0, "failed": 0}
    for check in CHECKS:
        for finding in examine(check):
            counts[finding.status] += 1
            print(f"{finding.status:<8} {finding.subject:<24} {finding.detail}")
            if finding.remedy:
                print(f"{'':<8} {'':<24} -> {finding.remedy}")
    good = counts["failed"] == 0
    print(f"ok={str(good).lower()} failed={counts['failed']} warnings={counts['warning']}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
