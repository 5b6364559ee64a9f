"""Atomic files, strict JSON and JSON lines, against processes that die at the worst moment."""

import enum
import errno
import json
import math
import os
import resource
import signal
import subprocess
import sys
import textwrap
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from common import files
from common.errors import UserError

ROOT = Path(__file__).resolve().parents[2]


def python(code: str, *args: object, **kwargs) -> subprocess.Popen:
    """A child interpreter running `code` with the repository importable."""
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, args)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        **kwargs,
    )


def visible(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_killed_halfway_through_a_write_leaves_the_old_content(tmp_path):
    target = tmp_path / "model.bin"
    target.write_bytes(b"old")
    child = python(
        """
        import sys, time
        from common.files import replacing
        with replacing(sys.argv[1]) as temporary, open(temporary, "wb") as file:
            file.write(b"half")
            file.flush()
            print("half", flush=True)
            time.sleep(60)
        """,
        target,
    )
    assert child.stdout.readline() == "half\n"
    child.kill()
    child.wait()
    assert target.read_bytes() == b"old"
    (leftover,) = set(tmp_path.iterdir()) - {target}
    assert leftover.suffix == ".bin" and leftover.read_bytes() == b"half"
    assert files.remove_temporaries(tmp_path) == [leftover]
    assert visible(tmp_path) == ["model.bin"]


def test_killed_at_any_moment_leaves_one_whole_version(tmp_path):
    target = tmp_path / "model.bin"
    size = 4 << 20
    for trial in range(4):
        child = python(
            """
            import sys
            from common.files import atomic_write_bytes
            print("ready", flush=True)
            while True:
                for letter in (b"a", b"b"):
                    atomic_write_bytes(sys.argv[1], letter * int(sys.argv[2]))
            """,
            target,
            size,
        )
        child.stdout.readline()
        while not target.exists():
            time.sleep(0.001)
        time.sleep(0.013 * trial)
        child.send_signal(signal.SIGKILL)
        child.wait()
        content = target.read_bytes()
        assert content in (b"a" * size, b"b" * size)


def test_failed_write_keeps_old_content_and_no_temporary(tmp_path):
    target = tmp_path / "a.json"
    files.write_json(target, {"v": 1})
    with pytest.raises(TypeError, match="object"):
        files.write_json(target, {"v": object()})
    with pytest.raises(RuntimeError), files.replacing(target) as temporary:
        temporary.write_text("half")
        raise RuntimeError
    assert files.read_json(target) == {"v": 1}
    assert visible(tmp_path) == ["a.json"]


def test_full_disk_keeps_old_content_and_names_the_file(tmp_path):
    # A file size limit makes write(2) itself fail partway, as a full disk does.
    target, rows = tmp_path / "a.bin", tmp_path / "rows.jsonl"
    target.write_bytes(b"old")
    for step in range(100):
        files.append_jsonl(rows, {"step": step})
    limit = rows.stat().st_size + 5
    child = python(
        """
        import sys
        from common import errors, files
        try:
            files.append_jsonl(sys.argv[2], {"step": 100, "text": "x" * 100})
        except OSError as error:
            print(error.filename, flush=True)
        with errors.reported():
            files.atomic_write_bytes(sys.argv[1], bytes(1 << 20))
        """,
        target,
        rows,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
        env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"},
    )
    out, err = child.communicate()
    assert out == f"{rows}\n"
    assert child.returncode == 2
    assert err.startswith("error: ") and err.count("\n") == 1 and str(target) in err
    assert target.read_bytes() == b"old"
    assert rows.read_bytes().endswith(b"}\n") and len(files.read_jsonl(rows)) == 100
    assert visible(tmp_path) == ["a.bin", "rows.jsonl"]


def test_new_files_obey_the_umask(tmp_path):
    before = os.umask(0o027)
    try:
        files.atomic_write_text(tmp_path / "a.txt", "x")
    finally:
        os.umask(before)
    assert (tmp_path / "a.txt").stat().st_mode & 0o777 == 0o640


def test_temporary_keeps_the_suffix_and_makes_parents(tmp_path):
    with files.replacing(tmp_path / "deep" / "film.mp4") as temporary:
        assert temporary.suffix == ".mp4" and temporary.name.startswith(".")
        temporary.write_bytes(b"x")
    assert visible(tmp_path / "deep") == ["film.mp4"]


class Colour(enum.Enum):
    RED = "red"


@dataclass
class Point:
    x: float
    tags: tuple[str, ...] = ()


def test_json_takes_what_research_code_has_and_stays_strict(tmp_path):
    files.write_json(
        tmp_path / "a.json",
        {
            "nan": math.nan,
            "inf": np.float32(-np.inf),
            "array": np.array([[1.0, np.nan], [2.0, 3.0]], np.float32),
            "scalar": np.int64(7),
            "flag": np.bool_(True),
            "point": Point(np.float64(0.5), ("a",)),
            "path": Path("x/y"),
            "enum": Colour.RED,
            "set": {3, 1, 2},
            7: "int key",
        },
    )

    def refuse(constant):
        raise AssertionError(f"{constant} is not JSON")

    loaded = json.loads((tmp_path / "a.json").read_text(), parse_constant=refuse)
    assert loaded == {
        "nan": None,
        "inf": None,
        "array": [[1.0, None], [2.0, 3.0]],
        "scalar": 7,
        "flag": True,
        "point": {"x": 0.5, "tags": ["a"]},
        "path": "x/y",
        "enum": "red",
        "set": [1, 2, 3],
        "7": "int key",
    }
    assert loaded["flag"] is True


def test_read_json_names_a_missing_or_damaged_file(tmp_path):
    with pytest.raises(UserError, match=r"missing\.json: no such file"):
        files.read_json(tmp_path / "missing.json")
    (tmp_path / "bad.json").write_text('{"a": ')
    with pytest.raises(UserError, match=r"bad\.json is not valid JSON"):
        files.read_json(tmp_path / "bad.json")


def test_torn_last_line_is_left_out_and_the_next_row_is_not_lost(tmp_path):
    path = tmp_path / "m.jsonl"
    first, second, third = {"step": 1}, {"step": 22, "text": "ärger"}, {"step": 3}
    whole = files.json_line(first).encode()
    row = files.json_line(second).encode()
    for cut in range(len(row)):  # a crash after any byte of the second row
        path.write_bytes(whole + row[:cut])
        complete = [second] if cut == len(row) - 1 else []  # only its newline is missing
        assert files.read_jsonl(path) == [first, *complete]
        files.append_jsonl(path, third)
        assert files.read_jsonl(path) == [first, *complete, third]
        assert path.read_bytes().count(b"\n") == 2 + len(complete)


def test_torn_line_longer_than_a_read_block(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "_CHUNK", 16)
    path = tmp_path / "m.jsonl"
    path.write_bytes(b'{"a": 1}\n{"b": "' + b"x" * 100)
    files.append_jsonl(path, {"c": 3})
    assert files.read_jsonl(path) == [{"a": 1}, {"c": 3}]


def test_damage_in_the_middle_is_reported_with_its_line(tmp_path):
    path = tmp_path / "m.jsonl"
    path.write_text('{"a": 1}\n{"b"\n{"c": 3}\n')
    with pytest.raises(UserError, match=r"m\.jsonl line 2 is not valid JSON"):
        files.read_jsonl(path)
    assert files.read_jsonl(tmp_path / "missing.jsonl") == []


def test_processes_append_to_one_file_without_mixing_rows(tmp_path):
    path = tmp_path / "ledger.jsonl"
    code = """
    import sys
    from common.files import append_jsonl
    for i in range(200):
        append_jsonl(sys.argv[1], {"who": sys.argv[2], "i": i, "pad": "x" * 300})
    """
    children = [python(code, path, who) for who in "abc"]
    assert [child.wait() for child in children] == [0, 0, 0]
    rows = files.read_jsonl(path)
    for who in "abc":
        assert [row["i"] for row in rows if row["who"] == who] == list(range(200))


def test_a_row_that_another_process_is_writing_is_not_taken_for_torn(tmp_path):
    path = tmp_path / "ledger.jsonl"
    writer = python(
        """
        import fcntl, sys, time
        with open(sys.argv[1], "ab", buffering=0) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.write(b'{"slow": ')
            print("half", flush=True)
            time.sleep(0.3)
            file.write(b"1}\\n")
        """,
        path,
    )
    assert writer.stdout.readline() == "half\n"
    files.append_jsonl(path, {"fast": 2})
    assert writer.wait() == 0
    assert files.read_jsonl(path) == [{"slow": 1}, {"fast": 2}]


def test_tree_hash_sees_names_and_bytes_but_not_the_place(tmp_path):
    def tree(where: str, contents: dict[str, str]) -> str:
        for name, text in contents.items():
            files.atomic_write_text(tmp_path / where / name, text)
        return files.sha256_tree(tmp_path / where, ["**/*.py", "*.yaml"])

    base = tree("a", {"x.py": "1", "sub/y.py": "2", "c.yaml": "3", "notes.md": "4"})
    assert tree("b", {"sub/y.py": "2", "c.yaml": "3", "x.py": "1"}) == base
    assert tree("c", {"sub/z.py": "2", "c.yaml": "3", "x.py": "1"}) != base
    assert tree("d", {"sub/y.py": "1", "c.yaml": "3", "x.py": "2"}) != base


def test_file_hash(tmp_path):
    (tmp_path / "a").write_bytes(b"abc")
    assert files.sha256_file(tmp_path / "a") == (
        "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    )


@pytest.mark.parametrize("name", ["file/film.mp4", "file/deep/film.mp4", "directory", "x" * 300])
def test_a_path_where_no_file_can_be_is_named(tmp_path, name):
    (tmp_path / "file").write_text("in the way")
    (tmp_path / "directory").mkdir()
    with pytest.raises(UserError, match=f"cannot write {tmp_path / name}: "):
        files.atomic_write_bytes(tmp_path / name, b"data")
    assert visible(tmp_path) == ["directory", "file"]


def test_an_error_that_cannot_be_changed_still_names_the_file(tmp_path):
    av = pytest.importorskip("av")
    with pytest.raises(PermissionError) as caught, files.replacing(tmp_path / "film.mp4") as path:
        raise av.error.PermissionError(errno.EACCES, "denied", str(path))
    assert caught.value.filename == str(tmp_path / "film.mp4")


@pytest.mark.parametrize("row", ["3", "[1]", "null"])
def test_rows_that_are_no_objects_are_refused(tmp_path, row):
    (tmp_path / "m.jsonl").write_text('{"a": 1}\n' + row + "\n")
    with pytest.raises(UserError, match=r"m\.jsonl line 2 is not a JSON object"):
        files.read_jsonl(tmp_path / "m.jsonl")


@pytest.mark.parametrize("read", [files.read_json, files.read_jsonl])
def test_a_directory_in_a_files_place_is_named(tmp_path, read):
    with pytest.raises(UserError, match="cannot be read: Is a directory"):
        read(tmp_path)
