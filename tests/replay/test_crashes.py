"""Writing, against kills at every moment, other writers and disks that fill."""

import errno
import itertools
import os
import random
import resource
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import h5py
import pytest

from common import files
from common.errors import reported
from replay import ShardWriter, shards
from replay.schema import columns
from tests.replay.counters import ATTRIBUTES, check_all, episode, open_data, visible, write
from tests.replay.processes import exit_code, forked


def die(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def dying(real: Callable, use: int, part: Callable = lambda *_: None) -> Callable:
    """`real`, but its call number `use` does only `part` of it and kills the process."""
    calls = itertools.count(1)

    def call(*args, **options):
        if next(calls) == use:
            part(*args)
            die()
        return real(*args, **options)

    return call


def half_a_file(path: Path, data: bytes) -> None:
    with open(path, "wb") as file:
        file.write(data[: len(data) // 2])


def half_a_line(path: Path, row: dict) -> None:
    line = files.json_line(row).encode()
    with open(path, "ab") as file:
        file.write(line[: len(line) // 2])


# Where the writer of shard k dies (from 1 on), in the order of its work.
DATASETS = len(columns()) + 5
MOMENTS = {
    "a dataset": lambda number: (h5py.Group, "create_dataset", DATASETS * (number - 1) + 7),
    "the file": lambda number: (Path, "write_bytes", number, half_a_file),
    "before fsync": lambda number: (files, "fsync_path", 2 * number - 1),
    "before rename": lambda number: (os, "replace", number),
    "after rename": lambda number: (files, "fsync_path", 2 * number),
    "before the index line": lambda number: (shards, "append_jsonl", number),
    "in the index line": lambda number: (shards, "append_jsonl", number, half_a_line),
    "after the index line": lambda number: (shards, "append_jsonl", number, files.append_jsonl),
}


@pytest.mark.parametrize("shard", [1, 2, 3])
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_kill_costs_the_shard_in_work_and_nothing_else(tmp_path, moment, shard):
    write(tmp_path, [3, 2])
    lengths = [4, 3, 5, 2, 6, 1, 4, 3]

    def task():
        place, name, *rest = MOMENTS[moment](shard)
        setattr(place, name, dying(getattr(place, name), *rest))
        write(tmp_path, lengths, first=2, max_rows=5)

    assert exit_code(forked(task)) == -signal.SIGKILL
    whole = shard + (moment == "after the index line")
    data = open_data(tmp_path)
    assert len(data.shards) == whole
    check_all(data)
    report = data.verify()
    assert report.damaged == {}
    stages = list(MOMENTS)
    orphaned = stages.index("after rename") <= stages.index(moment) < len(stages) - 1
    assert len(report.unindexed) == orphaned

    write(tmp_path, [2, 2], first=20)
    assert not [name for name in visible(data.path) if ".tmp" in name]
    data = open_data(tmp_path)
    assert len(data.shards) == whole + 1
    check_all(data)


def test_killed_at_any_moment(tmp_path):
    rng = random.Random(0)
    written = 0
    for trial in range(20):
        reader, writer = os.pipe()
        first = 10 * trial

        def task(first=first, writer=writer):
            with ShardWriter(tmp_path, "D", "train", ATTRIBUTES, max_rows=1) as target:
                for number in itertools.count(first):
                    target.add(episode(number % 250, 2))
                    os.write(writer, b".")

        child = forked(task)
        os.close(writer)
        assert os.read(reader, 1) == b"."
        time.sleep(rng.uniform(0, 0.02))
        os.kill(child, signal.SIGKILL)
        assert exit_code(child) == -signal.SIGKILL
        finished = 1
        while more := os.read(reader, 4096):
            finished += len(more)
        os.close(reader)
        index = tmp_path / "D" / "train" / "index.jsonl"
        before, written = written, len(files.read_jsonl(index))
        # The last one may have been whole before its writer could say so.
        assert written - before in (finished, finished + 1)
    data = open_data(tmp_path)
    assert len(data.shards) == written and data.verify().damaged == {}
    check_all(data)


def test_two_writers_share_a_data_set(tmp_path):
    children = [
        forked(lambda first=first: write(tmp_path, [3] * 12, first=first, max_rows=3))
        for first in (0, 100)
    ]
    assert [exit_code(child) for child in children] == [0, 0]
    data = open_data(tmp_path)
    assert len(data.shards) == 24
    check_all(data)
    seeds = data.episodes["track_seed"]
    for first in (10_000, 10_100):
        worker_seeds = seeds[(seeds >= first) & (seeds < first + 100)]
        assert worker_seeds.tolist() == list(range(first, first + 12))


def test_only_a_writer_that_is_alone_removes_temporaries(tmp_path):
    leftover = tmp_path / "D" / "train" / ".shard-0123456789ab.0123456789ab.tmp.h5"
    with ShardWriter(tmp_path, "D", "train", ATTRIBUTES):
        leftover.write_bytes(b"half")
        write(tmp_path, [2])
        assert leftover.exists()
    write(tmp_path, [2], first=1)
    assert not leftover.exists()
    assert len(open_data(tmp_path).shards) == 2


def test_full_disk_ends_with_one_line_and_a_whole_index(tmp_path):
    # A file size limit makes write(2) itself fail partway, as a full disk does.
    write(tmp_path, [4])
    path = tmp_path / "D" / "train"
    before = visible(path)
    index = (path / "index.jsonl").read_bytes()

    def task():
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
        with open(tmp_path / "stderr", "w", buffering=1) as sys.stderr, reported():
            write(tmp_path, [9], first=1)

    assert exit_code(forked(task)) == 2
    message = (tmp_path / "stderr").read_text()
    assert message.startswith("error: File too large: ") and message.count("\n") == 1
    assert f"{path}/shard-" in message and ".tmp" not in message
    assert visible(path) == before and (path / "index.jsonl").read_bytes() == index
    check_all(open_data(tmp_path))


def test_a_shard_that_finds_no_room_in_the_index_is_taken_back(tmp_path, monkeypatch):
    write(tmp_path, [4])
    before = visible(tmp_path / "D" / "train")

    def full(path, row):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    monkeypatch.setattr(shards, "append_jsonl", full)
    with pytest.raises(OSError, match=r"No space left on device: .*index\.jsonl"):
        write(tmp_path, [4], first=1)
    assert visible(tmp_path / "D" / "train") == before
