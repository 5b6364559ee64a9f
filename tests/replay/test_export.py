"""To Minari and back."""

import json
import warnings

import numpy as np
import pytest

from common.errors import UserError
from common.telemetry import TELEMETRY
from replay import Attributes, Episode
from replay.export import export_minari, import_minari

minari = pytest.importorskip("minari")

ID = "racing/test-v0"


def episode(rng: np.random.Generator, rows: int, end: str, telemetry=tuple(TELEMETRY)) -> Episode:
    action = rng.uniform(-1, 1, (rows, 3)).astype(np.float32)
    reward = rng.normal(size=rows).astype(np.float32)
    action[0], reward[0] = 0, 0
    ends = {name: np.zeros(rows, bool) for name in ("terminated", "truncated")}
    if end in ends:
        ends[end][-1] = True
    return Episode(
        observation=rng.integers(0, 256, (rows, 96, 96, 3), np.uint8),  # JPEG would ruin it
        action=action,
        reward=reward,
        telemetry={name: rng.normal(size=rows).astype(np.float32) for name in telemetry},
        track_seed=int(rng.integers(10_000, 20_000)),
        direction=int(rng.integers(2)),
        scenario=f"test_{end}",
        **ends,
    )


def attributes(telemetry=tuple(TELEMETRY)) -> Attributes:
    return Attributes({"preset": "race"}, {"time": -0.1}, {}, 1, "test", "0", telemetry=telemetry)


@pytest.mark.parametrize("telemetry", [tuple(TELEMETRY), ()])
def test_nothing_is_lost_on_the_way_there_and_back(tmp_path, telemetry):
    rng = np.random.default_rng(1)
    lengths = ((5, "terminated"), (9, "truncated"), (2, "cut"))
    episodes = [episode(rng, rows, end, telemetry) for rows, end in lengths]
    data = export_minari(iter(episodes), attributes(telemetry), ID, tmp_path)
    assert (data.total_episodes, data.total_steps) == (3, 4 + 8 + 1)
    assert json.loads(data.storage.metadata["description"])["reward"] == {"time": -0.1}
    for e, stored in zip(episodes, data.iterate_episodes(), strict=True):
        assert stored.observations.shape == (len(e), 96, 96, 3)
        assert stored.actions.shape == (len(e) - 1, 3)
        assert np.array_equal(stored.observations, e.observation)
        assert np.array_equal(stored.actions, e.action[1:])  # o_t, then the action taken there
        assert stored.terminations[-1] or stored.truncations[-1]
    imported = list(import_minari(ID, tmp_path))
    for e, back in zip(episodes, imported, strict=True):
        assert back.arrays.keys() == e.arrays.keys()
        for name, array in e.arrays.items():
            assert back.arrays[name].dtype == array.dtype
            assert np.array_equal(back.arrays[name], array), name
        for name in ("track_seed", "direction", "scenario"):
            assert getattr(back, name) == getattr(e, name)


def test_an_existing_or_missing_data_set_is_named(tmp_path):
    one = [episode(np.random.default_rng(2), 3, "cut")]
    with pytest.raises(UserError, match="no Minari data set 'racing/test-v0'"):
        list(import_minari(ID, tmp_path))
    export_minari(one, attributes(), ID, tmp_path)
    with pytest.raises(UserError, match=r"racing/test-v0 exists: choose another id"):
        export_minari(one, attributes(), ID, tmp_path)
    with pytest.raises(UserError, match="is a data set and cannot hold others"):
        export_minari(one, attributes(), f"{ID}/more-v1", tmp_path)


@pytest.mark.parametrize(
    "wrong",
    ["nover", "no id-v0", "../../x-v0", "/tmp/x-v0", "a//b-v0", "a/../b-v0", "", "x-v", "é-v0"],
)
def test_an_id_that_is_none_is_refused_before_anything_is_made(tmp_path, wrong):
    root = tmp_path / "deep" / "root"
    one = [episode(np.random.default_rng(2), 3, "cut")]
    with pytest.raises(UserError, match="such as racing/d1-v0"):
        export_minari(one, attributes(), wrong, root)
    with pytest.raises(UserError, match="such as racing/d1-v0"):
        list(import_minari(wrong, root))
    assert list(tmp_path.iterdir()) == []


def test_a_root_that_cannot_be_written_to_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="choose another out"):
        export_minari([], attributes(), ID, tmp_path / "file")


def listed(root, monkeypatch):
    """Ids of the data sets that Minari finds, and whether it had to warn."""
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(root))
    with warnings.catch_warnings(action="error"):
        return sorted(minari.list_local_datasets())


def test_an_export_that_fails_leaves_no_half_behind(tmp_path, monkeypatch):
    one = episode(np.random.default_rng(3), 5, "cut")

    def broken():
        yield one
        raise OSError("the source is gone")

    with pytest.raises(OSError, match="gone"):
        export_minari(broken(), attributes(), ID, tmp_path)
    assert list(tmp_path.iterdir()) == []
    export_minari([one], attributes(), ID, tmp_path)
    export_minari([one], attributes(), "racing/deep/other-v3", tmp_path)
    assert len(list(import_minari(ID, tmp_path))) == 1
    assert listed(tmp_path, monkeypatch) == ["racing/deep/other-v3", ID]
    assert sorted(minari.namespace.list_local_namespaces()) == ["racing", "racing/deep"]
