"""Compiled kernels on disk: no cache, a full one and damaged ones, each in a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[4]
PROGRAM = """
import tempfile
tempfile.tempdir = {temporary!r}
from envs.racing.sim import notice
notice.PATIENCE = 0.0
from envs.racing.sim.kernel import CACHE_DIRECTORY, kernel

@kernel
def halved(x):
    return 0.5 * x

assert halved(3.0) == 1.5
print(halved._cache_misses.total(), CACHE_DIRECTORY)
"""


@pytest.fixture
def compile_one(tmp_path):
    """Runs a process that compiles one kernel; returns (compilations, directory, stderr)."""
    program = tmp_path / "program.py"

    def run(cache, temporary=tmp_path / "temporary"):
        program.write_text(PROGRAM.format(temporary=str(temporary)))
        environment = {**os.environ, "NUMBA_CACHE_DIR": str(cache), "PYTHONPATH": str(ROOT)}
        done = subprocess.run(
            [sys.executable, program], env=environment, capture_output=True, text=True, check=True
        )
        count, directory = done.stdout.split()
        return int(count), directory, done.stderr

    return run


def test_the_first_process_says_that_it_compiles_and_the_next_one_need_not(compile_one, tmp_path):
    count, directory, errors = compile_one(tmp_path)
    assert count == 1 and directory.startswith(str(tmp_path / "dreamracer"))
    assert errors.count("\n") == 1
    assert "compiling the engine, about half a minute, once after each change" in errors
    assert compile_one(tmp_path) == (0, directory, "")


@pytest.mark.parametrize(
    ("suffix", "damage"), [("nbi", "garbage"), ("nbc", "one bit"), ("nbc", "truncated")]
)
def test_a_damaged_file_is_removed_and_compiled_again(compile_one, tmp_path, suffix, damage):
    _, directory, _ = compile_one(tmp_path)
    (path,) = Path(directory).rglob(f"*halved*.{suffix}")
    content = bytearray(path.read_bytes())
    if damage == "one bit":
        content[len(content) // 2] ^= 1
    path.write_bytes({"garbage": b"garbage", "truncated": content[:-40]}.get(damage, content))
    count, _, errors = compile_one(tmp_path)
    assert count == 1 and "Traceback" not in errors
    (line,) = [line for line in errors.splitlines() if "damaged" in line]
    assert directory in line and "have been removed; they are compiled again" in line


def test_an_unwritable_cache_falls_back_to_a_directory_that_processes_share(compile_one, tmp_path):
    temporary = tmp_path / "temporary"
    count, directory, _ = compile_one("/proc/nowhere", temporary)
    assert count == 1 and directory.startswith(str(temporary / f"dreamracer-{os.getuid()}"))
    assert compile_one("/proc/nowhere", temporary) == (0, directory, "")


def test_without_any_directory_every_process_says_so_once_with_the_remedy(compile_one):
    for _ in range(2):
        count, directory, errors = compile_one("/proc/nowhere", "/proc/nowhere")
        assert (count, directory) == (1, "None")
        assert errors.count("\n") == 1
        assert "in every process: /proc/nowhere/dreamracer and /proc/nowhere/dreamracer-" in errors
        assert "cannot be written; set NUMBA_CACHE_DIR to a directory that can" in errors
