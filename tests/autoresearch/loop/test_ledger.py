"""The ledger is whole or says where it is not; a torn row costs nothing that was decided."""

import json
import resource
import subprocess
import sys

import pytest

from autoresearch.loop.ledger import START, Ledger
from common.errors import UserError


@pytest.fixture
def path(tmp_path):
    """A ledger of four rows."""
    path = tmp_path / "toy" / "ledger.jsonl"
    with Ledger.writing(path) as ledger:
        for number in range(4):
            ledger.append("judged", {"number": number, "text": 'é\u2028"\n'})
    return path


def test_rows_are_chained_and_read_back(path):
    rows = Ledger.reading(path).rows
    assert [row.data["number"] for row in rows] == [0, 1, 2, 3]
    assert [row.before for row in rows] == [START, *(row.hash for row in rows[:-1])]
    with Ledger.writing(path) as ledger:
        ledger.append("closed", {})
    assert len(Ledger.reading(path).rows) == 5


def test_any_changed_byte_is_found(path):
    whole = path.read_bytes()
    for place in range(0, len(whole) - 1, 7):
        changed = bytearray(whole)
        changed[place] ^= 1
        path.write_bytes(changed)
        with pytest.raises(UserError, match=r"ledger\.jsonl line [1-4]"):
            Ledger.reading(path)


@pytest.mark.parametrize("line", range(3))
def test_a_removed_row_is_found(path, line):
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:line] + lines[line + 1 :]))
    with pytest.raises(UserError, match="the chain is broken"):
        Ledger.reading(path)


def test_an_inserted_row_is_found(path):
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:2], lines[1], *lines[2:]]))
    with pytest.raises(UserError, match="line 3: the chain is broken"):
        Ledger.reading(path)


def test_a_row_made_up_with_a_right_hash_breaks_the_chain_behind_it(path):
    from autoresearch.loop.ledger import Row

    rows = Ledger.reading(path).rows
    forged = Row.after(rows[0], "judged", {"number": 100})
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([lines[0], forged.line(), *lines[2:]]))
    with pytest.raises(UserError, match="line 3: the chain is broken"):
        Ledger.reading(path)


def test_a_torn_last_row_is_left_out_and_cut_off(path):
    whole = path.read_bytes()
    with Ledger.writing(path) as ledger:
        ledger.append("closed", {"number": 4})
    longer = path.read_bytes()
    for length in range(len(whole), len(longer)):
        path.write_bytes(longer[:length])
        assert len(Ledger.reading(path).rows) == 4
    with Ledger.writing(path) as ledger:
        assert path.read_bytes() == whole
        ledger.append("closed", {"number": 5})
    assert Ledger.reading(path).rows[-1].data == {"number": 5}


def test_one_process_writes_at_a_time(path):
    second = Ledger.writing(path)
    with Ledger.writing(path), pytest.raises(UserError, match="another process"), second:
        pass
    with Ledger.writing(path) as ledger:
        assert len(ledger.rows) == 4


def test_a_full_disk_costs_the_new_row_only(path):
    # A file size limit makes write(2) itself fail partway, as a full disk does.
    size = path.stat().st_size
    code = f"""
import signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
from pathlib import Path
from autoresearch.loop.ledger import Ledger
with Ledger.writing(Path({str(path)!r})) as ledger:
    try:
        ledger.append("judged", {{"text": "x" * 1000}})
    except OSError as error:
        print(error.filename)
"""
    limit = size + 300
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
    )  # fmt: skip
    assert done.stdout.strip() == str(path)
    assert path.stat().st_size == size and len(Ledger.reading(path).rows) == 4


def test_what_is_no_row_is_told(path, tmp_path):
    path.write_text(json.dumps({"number": 0}) + "\n")
    with pytest.raises(UserError, match="line 1 was changed"):
        Ledger.reading(path)
    with pytest.raises(UserError, match="no such ledger"):
        Ledger.reading(tmp_path / "nowhere")
    with Ledger.writing(tmp_path / "new") as ledger, pytest.raises(ValueError, match="guessed"):
        ledger.append("guessed", {})
