"""Commands as processes: all that they start ends with them."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from autoresearch.config import ExecutorConfig
from autoresearch.execute.cluster import RayExecutor
from autoresearch.execute.leash import leashed
from autoresearch.execute.processes import Job, LocalExecutor, processes_of
from common.errors import UserError


def test_what_leaves_its_process_group_is_ended_too(tmp_path):
    executor = LocalExecutor(0.2)
    script = "import os, time\nif not os.fork():\n    os.setsid(); time.sleep(99)\ntime.sleep(0.5)"
    job = Job("f" * 16, ["-c", script], tmp_path, (), "a", tmp_path / "log", 30.0)
    executor.start(job)
    assert [ended.code for ended in executor.wait()] == [0]
    assert processes_of("f" * 16) == []


class TestLeash:
    @pytest.mark.parametrize("code", [0, 7])
    def test_it_ends_as_its_command_does(self, code):
        command = leashed([sys.executable, "-c", f"raise SystemExit({code})"], 0.1)
        assert subprocess.run(command, start_new_session=True).returncode == code

    @pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
    def test_signals_are_told_on(self, number):
        command = leashed([sys.executable, "-c", f"import os; os.kill(os.getpid(), {number})"], 0.1)
        assert subprocess.run(command, start_new_session=True).returncode == -number

    def test_a_command_outlives_no_parent(self, tmp_path):
        pid_file = tmp_path / "pid"
        sleeper = (
            f"import os, time; open({str(pid_file)!r}, 'w').write(str(os.getpid())); time.sleep(99)"
        )
        parent = (
            "import subprocess, sys, time\nfrom autoresearch.execute.leash import leashed\n"
            f"command = leashed([sys.executable, '-c', {sleeper!r}], 0.1)\n"
            "subprocess.Popen(command, start_new_session=True)\ntime.sleep(99)"
        )
        process = subprocess.Popen([sys.executable, "-c", parent])
        while not (pid_file.is_file() and pid_file.read_text()):
            time.sleep(0.02)
        process.kill()
        process.wait()
        until = time.monotonic() + 10
        while _lives(int(pid_file.read_text())) and time.monotonic() < until:
            time.sleep(0.05)
        assert not _lives(int(pid_file.read_text()))


def _lives(pid):
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_without_ray_the_error_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UserError, match=r"pip install -e '\.\[cluster\]'"):
        RayExecutor(ExecutorConfig(kind="ray"), 1.0)
