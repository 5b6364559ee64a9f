"""The doctor on this installation and on ones broken in known ways."""

import importlib.util
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "doctor.py"


@pytest.fixture
def doctor(monkeypatch):
    spec = importlib.util.spec_from_file_location("doctor", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setattr(sys, "path", sys.path[:])
    monkeypatch.setitem(sys.modules, "doctor", module)
    spec.loader.exec_module(module)
    monkeypatch.setattr(sys, "argv", ["doctor.py"])
    return module


def test_reports_on_everything_and_agrees_with_its_exit_code():
    done = subprocess.run([sys.executable, SCRIPT], capture_output=True, text=True)
    last = done.stdout.splitlines()[-1]
    failures = [line for line in done.stdout.splitlines() if line.startswith("failed")]
    assert last.startswith(f"ok={str(not failures).lower()} failed={len(failures)} warnings=")
    assert done.returncode == bool(failures)
    # Everything but the package itself, which a bare checkout may not have installed.
    assert [line.split()[1] for line in failures] in ([], ["dreamracer"])
    for subject in ("python", "torch", "numba", "CarRacing-v3", "video", "disk", "threads"):
        assert any(line.split()[1] == subject for line in done.stdout.splitlines())


def test_missing_and_different_packages_are_told_with_a_remedy(doctor, monkeypatch, capsys):
    installed = metadata.version

    def version(name):
        if name in ("h5py", "pytest"):
            raise metadata.PackageNotFoundError(name)
        return "0.0.1" if name == "rich" else installed(name)

    monkeypatch.setattr(metadata, "version", version)
    monkeypatch.setattr(doctor, "CHECKS", (doctor.check_packages,))
    assert doctor.main() == 1
    text = " ".join(capsys.readouterr().out.split())
    assert "failed h5py not installed -> make setup" in text
    assert "absent pytest not installed -> pip install -e '.[dev]'" in text
    assert f"warning rich 0.0.1, tested with {installed('rich')} -> make setup" in text
    assert "ok=false" in text


def test_a_check_that_crashes_is_a_finding(doctor, monkeypatch, capsys):
    def check_torch():
        raise ImportError("libtorch.so: cannot open shared object file")

    monkeypatch.setattr(doctor, "CHECKS", (check_torch,))
    assert doctor.main() == 1
    out = capsys.readouterr().out
    assert "failed   torch" in out and "libtorch.so" in out
    assert out.endswith("ok=false failed=1 warnings=0\n")


def test_help_and_arguments(doctor, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["doctor.py", "--help"])
    assert doctor.main() == 0 and "python scripts/doctor.py" in capsys.readouterr().out
    monkeypatch.setattr(sys, "argv", ["doctor.py", "fix=true"])
    assert doctor.main() == 2 and "takes no arguments" in capsys.readouterr().err
