"""Data sets made of others."""

import os

import numpy as np
import pytest

from common.errors import UserError
from replay import Attributes, DataSet, Episode, ShardWriter
from replay.curate import (
    choose_episodes,
    copy_episodes,
    known_shards,
    link_shards,
    read_episode,
    read_episodes,
)

ATTRIBUTES = Attributes({}, {}, {}, 1, "test", "0", telemetry=("speed",))


def episode(value: int, rows: int = 4) -> Episode:
    ends = np.zeros(rows, bool)
    action = np.full((rows, 3), value, np.float32)
    action[0] = 0
    return Episode(
        observation=np.full((rows, 96, 96, 3), value, np.uint8),
        action=action,
        reward=action[:, 0].copy(),
        terminated=ends,
        truncated=ends,
        telemetry={"speed": np.arange(rows, dtype=np.float32) + value},
        track_seed=10_000 + value,
        direction=value % 2,
        scenario="test",
    )


def write(root, name: str, *values: int, max_rows: int = 8) -> None:
    with ShardWriter(root, name, "train", ATTRIBUTES, max_rows=max_rows) as writer:
        for value in values:
            writer.add(episode(value))


def seeds(root, name: str) -> list[int]:
    return (DataSet(root, name, "train").episodes["track_seed"] - 10_000).tolist()


def test_an_episode_is_read_as_it_was_written(tmp_path):
    write(tmp_path, "a", 1, 2, 3)
    data = DataSet(tmp_path, "a", "train")
    for value, stored in zip((1, 2, 3), read_episodes(data), strict=True):
        expected = episode(value)
        assert stored.arrays.keys() == expected.arrays.keys()
        assert all(np.array_equal(a, expected.arrays[n]) for n, a in stored.arrays.items())
        assert (stored.track_seed, stored.direction) == (10_000 + value, value % 2)


def test_joining_costs_no_disk_and_can_be_repeated(tmp_path):
    write(tmp_path, "a", 1, 2, 3)
    write(tmp_path, "b", 4, 5)
    assert link_shards(tmp_path, "a", "both", "train") == 12
    assert link_shards(tmp_path, "b", "both", "train") == 8
    assert link_shards(tmp_path, "a", "both", "train") == 0
    assert seeds(tmp_path, "both") == [1, 2, 3, 4, 5]
    data = DataSet(tmp_path, "both", "train")
    assert not data.verify().damaged and not data.verify().unindexed
    shard = data.shards[0].file
    assert os.path.samefile(tmp_path / "a/train" / shard, tmp_path / "both/train" / shard)
    for file in (tmp_path / "a/train").iterdir():
        file.unlink()
    assert seeds(tmp_path, "both") == [1, 2, 3, 4, 5]  # it needs none of its parts
    write(tmp_path, "b", 6)
    assert link_shards(tmp_path, "b", "both", "train") == 4


def test_a_join_that_was_killed_before_its_index_line_is_completed(tmp_path):
    write(tmp_path, "a", 1, 2)
    (shard,) = known_shards(tmp_path, "a", "train")
    place = tmp_path / "both/train"
    place.mkdir(parents=True)
    os.link(tmp_path / "a/train" / shard.file, place / shard.file)
    (place / "index.jsonl").write_text('{"file": "sh')  # and torn in its very first line
    assert known_shards(tmp_path, "both", "train") == []
    assert link_shards(tmp_path, "a", "both", "train") == 8
    assert seeds(tmp_path, "both") == [1, 2]


def test_without_hard_links_shards_are_copied(tmp_path, monkeypatch):
    def refuse(source, target):
        raise OSError(1, "Operation not permitted")

    write(tmp_path, "a", 1, 2)
    monkeypatch.setattr(os, "link", refuse)
    assert link_shards(tmp_path, "a", "both", "train") == 8
    assert seeds(tmp_path, "both") == [1, 2]


def test_what_cannot_be_joined_is_refused(tmp_path):
    write(tmp_path, "a", 1)
    with pytest.raises(UserError, match="part of itself"):
        link_shards(tmp_path, "a", "a", "train")
    with pytest.raises(UserError, match="no such data set"):
        link_shards(tmp_path, "missing", "both", "train")


def test_episodes_are_chosen_by_rule_up_to_so_many_rows(tmp_path):
    write(tmp_path, "a", 1, 2, 3, 4, 5)
    data = DataSet(tmp_path, "a", "train")

    def odd(telemetry):
        assert telemetry["speed"].shape == (4,)
        return telemetry["speed"][0] % 2 == 1

    assert choose_episodes(data, odd, rows=100) == [0, 2, 4]
    chosen = choose_episodes(data, odd, rows=11)
    assert chosen == [0, 2]
    with ShardWriter(tmp_path, "b", "train", ATTRIBUTES) as writer:
        copy_episodes(data, chosen, writer)
    assert seeds(tmp_path, "b") == [1, 3]
    stored = read_episode(DataSet(tmp_path, "b", "train"), 1)
    assert np.array_equal(stored.observation, episode(3).observation)
