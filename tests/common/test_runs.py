"""Run directories: never shared, always explained, safe to continue."""

import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from common import runs
from common.errors import ConfigError, UserError
from common.runs import Run, check_disk, checkpoint_in

ROOT = Path(__file__).resolve().parents[2]
NOBODY = 65534


def create(root: Path, name: str = "ppo/a", **kwargs) -> Run:
    return Run.create(root, name, {"ppo": {"clip": 0.2}}, seeds={"root": 1}, **kwargs)


@contextmanager
def unprivileged():
    """Root may write anywhere, so tests about permissions step down for a moment."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


def test_layout_and_configuration(tmp_path):
    config = {"sizes": (1, 2), "rate": 1e-5, "inf": float("inf"), "name": "007", "none": None}
    run = Run.create(tmp_path / "runs", "ppo/x", config, seeds={"root": 3})
    assert run.path == tmp_path / "runs/ppo/x"
    assert run.checkpoints.is_dir() and run.videos.is_dir()
    assert Run.open(run.path).config == config | {"sizes": [1, 2]}


def test_manifest_tells_how_the_run_came_about(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["/somewhere/else/train_ppo.py", "seed=3"])
    manifest = create(tmp_path, extra={"evaluator": "abc"}).manifest
    assert manifest["command"] == ["train_ppo.py", "seed=3"]
    assert manifest["seeds"] == {"root": 1}
    assert manifest["evaluator"] == "abc"
    assert manifest["versions"]["python"].startswith("3.")
    assert manifest["versions"]["numpy"]
    assert manifest["machine"]["cores"] >= 1 and manifest["machine"]["cpu"]
    assert manifest["machine"]["threads"]["OMP_NUM_THREADS"] == "1"
    assert len(manifest["code"]["sha256"]) == 64
    assert manifest["created"].endswith("+00:00")


def git(directory: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.invalid"]
    command = ["git", "-C", str(directory), *identity, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def test_code_state_in_git_and_outside_of_it(tmp_path):
    tree = tmp_path / "tree"
    (tree / "common").mkdir(parents=True)
    source = tree / "common" / "a.py"
    source.write_text("x = 1\n")
    outside = runs.code_state(tree)
    assert outside["commit"] is None and outside["clean"] is None
    git(tree, "init", "-q")
    assert runs.code_state(tree)["commit"] is None  # no commit yet
    git(tree, "add", ".")
    git(tree, "commit", "-qm", "a")
    committed = runs.code_state(tree)
    assert committed == {
        "commit": git(tree, "rev-parse", "HEAD"), "clean": True, "sha256": outside["sha256"]
    }  # fmt: skip
    source.write_text("x = 2\n")
    changed = runs.code_state(tree)
    assert changed["clean"] is False and changed["sha256"] != committed["sha256"]
    (tree / "notes.md").write_text("no code")
    assert runs.code_state(tree)["sha256"] == changed["sha256"]


def test_a_surrounding_repository_is_not_ours(tmp_path):
    git(tmp_path, "init", "-q")
    git(tmp_path, "commit", "-q", "--allow-empty", "-m", "other")
    (tmp_path / "copy").mkdir()
    state = runs.code_state(tmp_path / "copy")
    assert state["commit"] is None and state["clean"] is None


def test_starts_in_the_same_moment_get_different_directories(tmp_path):
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda _: create(tmp_path), range(24)))
    assert len({run.path for run in made}) == 24
    assert {run.path.name for run in made} == {"a"} | {f"a-{i}" for i in range(2, 25)}
    for run in made:
        Run.open(run.path)


def test_timestamped_name():
    room, _, name = runs.timestamped("ppo", "race", "s1").partition("/")
    assert room == "ppo" and name.endswith("_race_s1")
    assert len(name.removesuffix("_race_s1")) == len("2026-11-29_14-30-00")


@pytest.mark.parametrize("name", ["", "/etc/x", "../x", "a/../../x"])
def test_names_cannot_leave_the_root(tmp_path, name):
    with pytest.raises(ConfigError, match="must be a relative path"):
        create(tmp_path / "runs", name)


def test_an_empty_root_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="is empty; name one"):
        create("")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "content", [b"", b"3\n", b"- a\n", b"a: [\n", b"\xff\xfe", b"a: ${\n"]
)  # fmt: skip
def test_a_damaged_configuration_is_refused(tmp_path, content):
    run = create(tmp_path)
    (run.path / "config.yaml").write_bytes(content)
    with pytest.raises(ConfigError, match=r"ppo/a/config\.yaml is damaged"):
        _ = run.config


def test_unwritable_directory_is_named():
    # Not pytest's directory: only its owner may enter that one, whatever lies inside.
    with tempfile.TemporaryDirectory() as directory:
        os.chmod(directory, 0o755)
        locked = Path(directory) / "locked"
        locked.mkdir(mode=0o555)
        with unprivileged(), pytest.raises(ConfigError) as caught:
            create(locked)
    assert str(caught.value) == f"cannot write the run directory {locked}/ppo/a: Permission denied"


def test_file_in_the_way_is_named(tmp_path):
    (tmp_path / "ppo").write_text("")
    with pytest.raises(ConfigError, match=rf"cannot write the run directory {tmp_path}/ppo/a: "):
        create(tmp_path)


def test_full_disk_is_refused_before_anything_is_made(tmp_path, monkeypatch):
    monkeypatch.setattr(runs, "MIN_FREE_BYTES", 1 << 60)
    with pytest.raises(ConfigError, match=rf"{tmp_path}/ppo: only \d+ MiB free"):
        create(tmp_path)
    assert list((tmp_path / "ppo").iterdir()) == []


def test_open_explains_what_is_not_a_run(tmp_path):
    with pytest.raises(ConfigError, match=r"nowhere: no such run directory"):
        Run.open(tmp_path / "nowhere")
    create(tmp_path)
    with pytest.raises(ConfigError, match=r"is not a run directory.*runs inside it: a"):
        Run.open(tmp_path / "ppo")
    (tmp_path / "ppo/a/manifest.json").unlink()  # a start killed before its manifest
    with pytest.raises(ConfigError, match=r"ppo/a is not a run directory: no manifest\.json"):
        Run.open(tmp_path / "ppo/a")


def test_metrics_are_cut_back_to_the_checkpoint(tmp_path):
    run = create(tmp_path)
    for row in [{"step": 1}, {"event": "eval"}, {"step": 2}, {"event": "late"}, {"step": 3}]:
        run.log(row)
    assert run.truncate_metrics(5) == run.truncate_metrics(9) == 0
    with open(run.path / "metrics.jsonl", "ab") as file:
        file.write(b'{"step": 4, "lo')
    assert run.truncate_metrics(2) == 3
    run.log({"step": 2, "again": True})
    assert run.metrics() == [{"step": 1}, {"event": "eval"}, {"step": 2, "again": True}]


def test_a_resume_leaves_its_trace(tmp_path):
    run = Run.create(
        tmp_path, "a", {"budget": 4, "net": {"sizes": [1, 2]}, "resume": None}, seeds={}
    )
    run.note_resume({"budget": 4, "net": {"sizes": (1, 2)}, "resume": "here"})
    run.note_resume({"budget": 6, "net": {"sizes": (1, 2)}, "resume": "here"})
    first, second = run.manifest["resumes"]
    assert first["changed"] == {} and second["changed"] == {"budget": 6}
    assert second["code"] == run.manifest["code"]
    assert run.config == {"budget": 6, "net": {"sizes": [1, 2]}, "resume": None}


def test_two_processes_cannot_write_one_run(tmp_path):
    run = create(tmp_path)
    holder = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import sys, time\n"
            "from common.runs import Run\n"
            "with Run.open(sys.argv[1]).lock():\n"
            "    print('held', flush=True)\n"
            "    time.sleep(60)\n",
            str(run.path),
        ],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdout.readline() == "held\n"
    with pytest.raises(ConfigError, match=f"by another process.*{holder.pid}"), run.lock():
        pytest.fail("both processes hold the run")
    holder.kill()
    holder.wait()
    (run.checkpoints / ".last.0123456789ab.tmp.pt").write_text("half a checkpoint")
    (run.checkpoints / ".keep.tmp").write_text("not ours")
    with run.lock():
        assert [path.name for path in run.checkpoints.iterdir()] == [".keep.tmp"]
    with run.lock():
        pass


def test_a_run_stands_for_its_checkpoint(tmp_path):
    file = tmp_path / "a.pt"
    assert checkpoint_in(file, ("best.pt",)) == file  # whoever reads it says that it is not there
    with pytest.raises(UserError, match=r"without checkpoints/best\.pt or last\.pt"):
        checkpoint_in(tmp_path, ("best.pt", "last.pt"))
    (tmp_path / "checkpoints").mkdir()
    for name in ("last.pt", "best.pt"):
        (tmp_path / "checkpoints" / name).touch()
        checkpoint = checkpoint_in(tmp_path, ("best.pt", "last.pt"))
        assert checkpoint == tmp_path / "checkpoints" / name


def test_a_committed_checkpoint_is_found_from_any_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    committed = Path("experiments/checkpoints/P5.pt")
    assert checkpoint_in(committed, ("final.pt",)) == runs.ROOT / committed
    committed.parent.mkdir(parents=True)
    committed.touch()
    assert checkpoint_in(committed, ("final.pt",)) == committed  # the nearest one


def test_an_empty_run_directory_is_refused():
    with pytest.raises(ConfigError, match="the run directory is empty; name one"):
        Run.open("")


def test_a_full_disk_is_told_before_anything_is_written(tmp_path):
    check_disk(tmp_path / "not" / "there", 1, "a note")
    with pytest.raises(ConfigError, match="a copy needs at least 1048576000 MiB; free some"):
        check_disk(tmp_path, 1000 << 40, "a copy")


def test_a_plain_name_lands_in_the_commands_folder():
    assert runs.run_name("x", "ppo", "race") == "ppo/x"
    assert runs.run_name("ladder/P5", "rssm") == "ladder/P5"
    assert runs.run_name("./x", "ppo") == "./x"
    assert runs.run_name("", "ppo", "race").startswith("ppo/2")


ASCII = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0", "PYTHONPATH": str(runs.ROOT)}


@pytest.mark.parametrize("setting", ["name", "comment", "root"])
def test_letters_that_the_locale_cannot_read_are_refused_before_anything_is_made(tmp_path, setting):
    script = (
        "import sys\n"
        "from common.errors import reported\n"
        "from common.runs import Run\n"
        "values = {'name': 'a', 'comment': '', 'root': 'r'} | {sys.argv[1]: sys.argv[2]}\n"
        "with reported():\n"
        "    Run.create(values['root'], values['name'], values, seeds={})\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, setting, "caf\u00e9".encode()],
        capture_output=True, text=True, cwd=tmp_path, env=os.environ | ASCII,
    )  # fmt: skip
    assert done.returncode == 2 and list(tmp_path.iterdir()) == []
    assert done.stderr.startswith("error: a setting has letters") and done.stderr.count("\n") == 1


def test_an_ascii_terminal_gets_every_message(tmp_path):
    script = "from common.errors import reported\nwith reported(): print(chr(0xb5), chr(0x2026))"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=os.environ | ASCII
    )
    assert (done.returncode, done.stdout) == (0, "\\xb5 \\u2026\n")
