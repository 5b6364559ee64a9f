"""Shards and their index: what was written is what is read, and all else is named."""

import errno
import json
import os
import pickle
import threading
from pathlib import Path

import h5py
import numpy as np
import pytest

from common.errors import UserError
from common.files import sha256_file
from common.telemetry import TELEMETRY, VERSION
from replay import DataSet, ShardWriter, index
from replay.schema import columns
from tests.replay.counters import (
    ATTRIBUTES,
    attributes,
    check_all,
    check_rows,
    episode,
    open_data,
    write,
)
from tests.replay.processes import exit_code, forked

T = 8
LENGTHS = [1, T - 1, T, T + 1, 1, 1, 2 * T + 3, T, 1]


def test_every_window_is_aligned_whatever_the_length_of_episodes(tmp_path):
    write(tmp_path, LENGTHS, max_rows=20)
    data = open_data(tmp_path)
    assert len(data.shards) == 3 and data.rows == sum(LENGTHS)
    assert data.episodes["length"].tolist() == LENGTHS
    assert data.episodes["start"].tolist() == np.cumsum([0, *LENGTHS[:-1]]).tolist()
    assert set(data.episodes["scenario"]) == {"counter"}
    batch = data.windows(np.arange(data.rows - T + 1), T)
    assert batch["observation"].shape == (data.rows - T + 1, T, 96, 96, 3)
    check_rows(batch, dict(enumerate(LENGTHS)))
    check_all(data)
    for start in (0, 13, data.rows - T):
        for name, array in data.window(start, T).items():
            np.testing.assert_array_equal(array, batch[name][start])


def test_a_shard_describes_itself(tmp_path):
    write(tmp_path, [3, 4])
    (info,) = open_data(tmp_path).shards
    with h5py.File(tmp_path / "D" / "train" / info.file) as file:
        for name, column in columns().items():
            assert file[name].shape == (7, *column.shape)
            assert file[name].dtype == column.dtype
        assert file["observation"].chunks is None
        assert file["episode/start"][()].tolist() == [0, 3]
        assert file["episode/length"][()].tolist() == [3, 4]
        assert file["episode/track_seed"][()].tolist() == [10_000, 10_001]
        assert file["episode/direction"][()].tolist() == [0, 1]
        assert file["episode/direction"].dtype == np.int8
        assert file["episode/scenario"].asstr()[()].tolist() == ["counter"] * 2
        about = dict(file.attrs)
    assert about["schema_version"] == 1 and about["split"] == "train"
    assert about["action_repeat"] == 1 and about["policy"] == "counter"
    assert json.loads(about["camera"]) == ATTRIBUTES.camera
    assert json.loads(about["environment"]) == ATTRIBUTES.environment
    assert json.loads(about["telemetry"]) == list(TELEMETRY)
    assert about["created"] == info.created and info.attributes == ATTRIBUTES


def test_row_numbers_stay_valid_while_a_data_set_grows(tmp_path):
    write(tmp_path, [5, 6])
    before = open_data(tmp_path)
    write(tmp_path, [7], first=2)
    after = open_data(tmp_path)
    assert (before.rows, after.rows) == (11, 18)
    assert before.sha256 != after.sha256
    for name, array in before.window(0, 11).items():
        np.testing.assert_array_equal(array, after.window(0, 11)[name])


def test_an_error_in_the_body_drops_what_is_pending(tmp_path):
    write(tmp_path, [3])
    with pytest.raises(RuntimeError), ShardWriter(tmp_path, "D", "train", ATTRIBUTES) as writer:
        writer.add(episode(1, 5))
        assert writer.pending_rows == 5
        raise RuntimeError
    assert open_data(tmp_path).rows == 3


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


DAMAGES = {
    "flipped byte": (flip, "is not what was written"),
    "truncated": (lambda path: os.truncate(path, path.stat().st_size - 1), "bytes, not"),
    "emptied": (lambda path: os.truncate(path, 0), "has 0 bytes, not"),
    "missing": (Path.unlink, "No such file"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_shard_is_named_and_skipped_only_when_asked(tmp_path, damage):
    write(tmp_path, [4, 5, 6], max_rows=1)
    broken = open_data(tmp_path).shards[1].file
    harm, message = DAMAGES[damage]
    harm(tmp_path / "D" / "train" / broken)
    with pytest.raises(UserError, match=f"{broken} is damaged: it .*{message}.*on_damage=skip"):
        open_data(tmp_path)
    data = open_data(tmp_path, on_damage="skip")
    assert data.rows == 10 and list(data.skipped) == [broken]
    assert data.episodes["start"].tolist() == [0, 4]
    check_all(data)
    assert list(data.verify().damaged) == [broken]


def test_damage_that_comes_while_reading_is_named(tmp_path):
    write(tmp_path, [4, 5], max_rows=1)
    data = open_data(tmp_path)
    path = data.path / data.shards[1].file
    os.truncate(path, 10_000)
    with pytest.raises(UserError, match=f"{path} is damaged"):
        data.window(2, 5)
    path.unlink()
    with pytest.raises(UserError, match=f"{path} cannot be read: No such file"):
        data.window(2, 5)
    check_rows(data.window(0, 4), {0: 4})


def test_without_hashes_size_and_structure_are_still_checked(tmp_path):
    write(tmp_path, [4, 5], max_rows=1)
    first, second = open_data(tmp_path).shards
    flip(tmp_path / "D" / "train" / first.file)
    data = open_data(tmp_path, check=False)
    assert data.rows == 9 and list(data.verify().damaged) == [first.file]
    path = tmp_path / "D" / "train" / second.file
    path.write_bytes(bytes(second.bytes))
    with pytest.raises(UserError, match=f"{second.file} is damaged"):
        open_data(tmp_path, check=False)


@pytest.mark.parametrize("mode", ["r", "r+", "a"])
def test_a_shard_that_this_process_holds_open_is_whole(tmp_path, mode):
    write(tmp_path, [4, 5], max_rows=1)
    for info in open_data(tmp_path).shards:
        with h5py.File(tmp_path / "D" / "train" / info.file, mode):
            data = open_data(tmp_path, on_damage="skip", check=False)
            assert data.rows == 9 and data.skipped == {}
            check_all(data)


def test_what_cannot_be_read_just_now_is_no_damage_and_is_not_skipped(tmp_path, monkeypatch):
    """Too many open files, no permission: skipping would lose whole rows without a word."""
    write(tmp_path, [4, 5], max_rows=1)
    broken = open_data(tmp_path).shards[1].file

    def read(path):
        if path.name == broken:
            raise OSError(errno.EMFILE, "Too many open files")
        return sha256_file(path)

    monkeypatch.setattr(index, "sha256_file", read)
    with pytest.raises(UserError, match=f"{broken} cannot be read: Too many open files"):
        open_data(tmp_path, on_damage="skip")


def test_nothing_whole_is_an_error(tmp_path):
    write(tmp_path, [4])
    (info,) = open_data(tmp_path).shards
    (tmp_path / "D" / "train" / info.file).unlink()
    with pytest.raises(UserError, match="none of the 1 shards is whole"):
        open_data(tmp_path, on_damage="skip")


def test_a_torn_last_index_line_is_no_shard(tmp_path):
    write(tmp_path, [4, 5], max_rows=1)
    index = tmp_path / "D" / "train" / "index.jsonl"
    index.write_bytes(index.read_bytes()[:-30])
    data = open_data(tmp_path)
    assert data.rows == 4 and len(data.verify().unindexed) == 1
    assert data.unindexed == data.verify().unindexed  # whoever opens it can say so
    write(tmp_path, [6], first=2)
    assert open_data(tmp_path).rows == 10


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema_version": 2}, "line 1: schema version 2; this code reads 1"),
        ({"rows": 5}, "line 1: rows is 5, but the episodes have 4"),
        ({"sha": "0"}, "line 1: unknown key 'sha'"),
    ],
)
def test_an_index_that_this_code_cannot_read_is_refused(tmp_path, change, message):
    write(tmp_path, [4])
    index = tmp_path / "D" / "train" / "index.jsonl"
    index.write_text(json.dumps(json.loads(index.read_text()) | change) + "\n")
    with pytest.raises(UserError, match=message):
        open_data(tmp_path)


def test_a_shard_that_is_listed_twice_does_not_count_twice(tmp_path):
    write(tmp_path, [4, 5], max_rows=1)
    index = tmp_path / "D" / "train" / "index.jsonl"
    first = index.read_bytes().splitlines(keepends=True)[0]
    index.write_bytes(index.read_bytes() + first)
    with pytest.raises(UserError, match=r"line 3: shard-.* is listed a second time"):
        open_data(tmp_path)


def test_rows_of_different_kinds_are_not_mixed(tmp_path):
    write(tmp_path, [4])
    write(tmp_path, [4], first=1, about=attributes(policy="another"))
    assert open_data(tmp_path).rows == 8
    write(tmp_path, [4], first=2, about=attributes(action_repeat=4))
    with pytest.raises(UserError, match="have different action_repeat"):
        open_data(tmp_path)


def test_a_missing_data_set_is_answered_with_those_that_are(tmp_path):
    write(tmp_path, [4])
    with pytest.raises(
        UserError,
        match=r"E/train: no such data set; collect it by python scripts/collect_replay.py "
        r"dataset=E root=.* \(there are D/train\)",
    ):
        DataSet(tmp_path, "E", "train")
    with pytest.raises(UserError, match="letters, digits"):
        DataSet(tmp_path, "../D", "train")
    with pytest.raises(UserError, match=r"'ignore' is not one of refuse, skip"):
        open_data(tmp_path, on_damage="ignore")
    with ShardWriter(tmp_path, "F", "train", ATTRIBUTES):
        pass
    with pytest.raises(
        UserError, match=r"no shard is complete yet; collect it by python .* dataset=F"
    ):
        DataSet(tmp_path, "F", "train")
    (tmp_path / "G").write_text("in the way")
    with pytest.raises(UserError, match="cannot write to"):
        ShardWriter(tmp_path, "G", "train", ATTRIBUTES)


def test_telemetry_is_whole_or_absent(tmp_path):
    names = ("speed", "steer")
    with ShardWriter(tmp_path, "D", "train", attributes(telemetry=names)) as writer:
        writer.add(episode(0, 5, names))
        with pytest.raises(UserError, match="lacks steer"):
            writer.add(episode(1, 5, ("speed",)))
        with pytest.raises(UserError, match="has an unannounced x"):
            writer.add(episode(1, 5, (*names, "x")))
    data = open_data(tmp_path)
    assert data.attributes.telemetry == names and data.rows == 5
    assert set(data.window(0, 5)) == set(columns(names))
    with pytest.raises(UserError, match=r"has no 'telemetry/yaw_rate'.*telemetry/steer"):
        data.window(0, 5, ["observation", "telemetry/yaw_rate"])
    with pytest.raises(UserError, match="has no 'telemetry/yaw_rate'"):
        data.column("telemetry/yaw_rate")


def test_no_telemetry_at_all(tmp_path):
    with ShardWriter(tmp_path, "D", "train", attributes(telemetry=())) as writer:
        writer.add(episode(0, 5, ()))
    assert set(open_data(tmp_path).window(1, 3)) == set(columns(()))


def test_columns_and_chosen_names(tmp_path):
    write(tmp_path, LENGTHS)
    data = open_data(tmp_path)
    whole = data.window(0, data.rows)
    for name in set(columns()) - {"observation"}:
        np.testing.assert_array_equal(data.column(name), whole[name])
    with pytest.raises(UserError, match="read as windows"):
        data.column("observation")
    assert list(data.windows([1, 2], 3, ["reward"])) == ["reward"]


def test_arrays_are_filled_again(tmp_path):
    write(tmp_path, LENGTHS)
    data = open_data(tmp_path)
    batch = data.windows([0, 1], T)
    again = data.windows([9, 13], T, out=batch)
    assert again is batch
    for name, array in data.windows([9, 13], T).items():
        np.testing.assert_array_equal(array, batch[name])
    for wrong in (
        {"reward": np.zeros((2, T))},
        {"reward": np.zeros((3, T), np.float32)},
        {"observation": np.zeros((T, 2, 96, 96, 3), np.uint8).swapaxes(0, 1)},
    ):
        with pytest.raises(ValueError, match="to fill is C-contiguous"):
            data.windows([9, 13], T, out=wrong)
    with pytest.raises(UserError, match="has no 'sped'"):
        data.windows([9, 13], T, out={"sped": np.zeros((2, T))})


@pytest.mark.parametrize(("start", "length"), [(-1, 2), (3, 3), (0, 6), (0, 0)])
def test_rows_that_do_not_exist_are_refused(tmp_path, start, length):
    write(tmp_path, [5])
    with pytest.raises(IndexError, match="has rows 0 to 4"):
        open_data(tmp_path).window(start, length)


@pytest.mark.parametrize("none", [[], (), np.array([], np.int32), np.zeros(0)])
def test_no_windows_are_arrays_without_windows(tmp_path, none):
    write(tmp_path, [5])
    data = open_data(tmp_path)
    batch = data.windows(none, 3)
    assert batch["observation"].shape == (0, 3, 96, 96, 3)
    assert batch["reward"].shape == (0, 3) and batch["reward"].dtype == np.float32
    assert data.windows(none, 3, out=batch) is batch


@pytest.mark.parametrize("wrong", [[1.0], [True], 2, [[0, 1]], ["0"]])
def test_starts_that_are_no_list_of_whole_numbers_are_refused(tmp_path, wrong):
    write(tmp_path, [5])
    with pytest.raises(ValueError, match="starts are a list of whole numbers"):
        open_data(tmp_path).windows(wrong, 2)


def test_forked_children_and_threads_read_what_the_parent_opened(tmp_path):
    write(tmp_path, LENGTHS)
    data = open_data(tmp_path)
    starts = np.arange(data.rows - T + 1)
    lengths = dict(enumerate(LENGTHS))
    check_rows(data.windows(starts, T), lengths)

    def task():
        for _ in range(3):
            check_rows(data.windows(starts, T), lengths)

    children = [forked(task) for _ in range(3)]
    task()
    assert [exit_code(child) for child in children] == [0, 0, 0]
    wrong: list[BaseException] = []

    def guarded():
        try:
            task()
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=guarded) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_data_set_can_be_sent_to_another_process(tmp_path):
    write(tmp_path, LENGTHS)
    check_all(pickle.loads(pickle.dumps(open_data(tmp_path))))


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc")
def test_reading_needs_no_more_memory_and_no_more_files_as_it_goes_on(tmp_path):
    write(tmp_path, [20] * 6)
    data = open_data(tmp_path)

    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")

    def read(batches: int) -> None:
        for i in range(batches):
            data.windows([i % 100, (7 * i) % 100], 20)

    read(50)
    before, opened = resident(), len(os.listdir("/proc/self/fd"))
    read(500)
    assert resident() - before < 8 << 20
    assert len(os.listdir("/proc/self/fd")) == opened


def test_shards_name_the_version_of_their_telemetry(tmp_path):
    write(tmp_path, [T])
    data = open_data(tmp_path)
    assert data.attributes.telemetry_version == VERSION
    with h5py.File(data.path / data.shards[0].file) as file:
        assert file.attrs["telemetry_version"] == VERSION


def test_shards_from_before_the_version_was_written_are_of_the_first(tmp_path):
    write(tmp_path, [T])
    path = open_data(tmp_path).path / "index.jsonl"
    row = json.loads(path.read_text())
    for name in ("telemetry_version", "endings"):
        del row["attributes"][name]
    path.write_text(json.dumps(row) + "\n")
    attributes = open_data(tmp_path).attributes
    assert attributes.telemetry_version == 1 and attributes.endings == {}


def test_telemetry_of_a_later_version_is_refused(tmp_path):
    write(tmp_path, [T])
    path = open_data(tmp_path).path / "index.jsonl"
    row = json.loads(path.read_text())
    row["attributes"]["telemetry_version"] = VERSION + 1
    path.write_text(json.dumps(row) + "\n")
    with pytest.raises(UserError, match=rf"telemetry_version is {VERSION + 1}; this code reads"):
        open_data(tmp_path)
