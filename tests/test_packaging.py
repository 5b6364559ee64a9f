"""How the project is installed: from a clone, with no half-working wheel, beside other people's
files."""

import shutil
import subprocess
import sys
import tomllib

import pytest

import dreamracer
from dreamracer import PACKAGES, ROOT


def python(*arguments, cwd, code=0):
    done = subprocess.run([sys.executable, *arguments], cwd=cwd, capture_output=True, text=True)
    assert done.returncode == code, done
    return done


def script_that_imports(packages, folder):
    script = folder / "drive.py"
    script.write_text(f"import sys\nsys.path.insert(1, {str(ROOT)!r})\nimport {packages}\n")
    return script


@pytest.mark.parametrize("package", ["envs.racing", "replay", "common.files"])
def test_a_file_that_hides_a_package_is_named(tmp_path, package):
    # Beside the script that a person runs, their own common.py comes first on the path.
    (tmp_path / "common.py").write_text("mine = 1\n")
    error = python(
        script_that_imports(package, tmp_path), cwd=tmp_path, code=1
    ).stderr.splitlines()[-1]
    if package.startswith("common"):  # what was asked for is their own file
        assert "common" in error
    else:
        assert f"{tmp_path / 'common.py'} is imported as `common` in place of" in error
        assert "rename that file" in error


def test_a_folder_of_the_same_name_does_no_harm(tmp_path):
    (tmp_path / "envs").mkdir()
    python(script_that_imports("replay, envs.racing", tmp_path), cwd=tmp_path)


def test_windows_is_refused_with_what_to_use(monkeypatch):
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(ImportError, match="WSL 2"):
        dreamracer.check_packages()


def test_no_wheel_is_built(tmp_path):
    for name in ("pyproject.toml", "setup.py", "dreamracer.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path)
    pip = ("-m", "pip", "wheel", "--no-build-isolation", "--no-deps", "-w", "wheels", ".")
    done = python(*pip, cwd=tmp_path, code=1)
    assert "used from a clone: run `make setup`" in done.stdout + done.stderr
    assert not list(tmp_path.glob("wheels/*"))


def test_packages_are_declared_typed_and_guarded():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    include = project["tool"]["setuptools"]["packages"]["find"]["include"]
    assert include == [f"{name}*" for name in PACKAGES]
    rooms = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    assert rooms == set(PACKAGES)
    for name in PACKAGES:
        assert (ROOT / name / "py.typed").is_file()
        assert "import dreamracer" in (ROOT / name / "__init__.py").read_text()
