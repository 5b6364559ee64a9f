import dataclasses
import pickle

import numpy as np
import pytest
import torch

import ppo
from common.errors import UserError
from common.torch.checkpoint import to_arrays, to_tensors
from ppo import checkpoint
from ppo.policy import ActorCritic
from tests.ppo.toys import NETWORK, SPEC


@pytest.fixture
def policy():
    torch.manual_seed(0)
    policy = ActorCritic(SPEC, NETWORK)
    with torch.no_grad():
        for parameter in policy.policy.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return policy


@pytest.fixture
def path(tmp_path, policy):
    path = tmp_path / "run" / "checkpoints" / "best.pt"
    checkpoint.save(path, policy.state_dict(), SPEC, NETWORK, {"ticks": 7})
    return path


def frames(n, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (n, *SPEC.shape), np.uint8)


def act(driver, observations, **options):
    n = len(observations)
    return driver.act(driver.initial(n), observations, np.ones(n, bool), **options)[0]


def rewritten(path, **changes):
    content = torch.load(path, weights_only=True) | changes
    torch.save({name: value for name, value in content.items() if value is not None}, path)
    return path


class TestDriver:
    def test_it_drives_as_the_policy_that_was_saved(self, path, policy):
        driver = ppo.load_policy(path)
        assert driver.spec == SPEC
        assert driver.about == {"ticks": 7}
        observations = frames(5)
        expected = policy.decide(
            torch.from_numpy(observations).permute(0, 2, 3, 1), torch.zeros(5, 3)
        ).action
        actions = act(driver, observations)
        assert actions.dtype == np.float32
        np.testing.assert_allclose(actions, expected.detach().numpy(), rtol=1e-6)

    def test_sampling_varies_and_the_mean_does_not(self, path):
        driver = ppo.load_policy(path)
        observations, first = frames(3), np.ones(3, bool)
        assert (act(driver, observations) == act(driver, observations)).all()
        carry = driver.initial(3, [7, 8, 9])
        one, later = driver.act(carry, observations, first, deterministic=False)
        two, _ = driver.act(later, observations, first, deterministic=False)
        assert (one != two).all()
        again, _ = ppo.load_policy(path).act(carry, observations, first, deterministic=False)
        assert (again == one).all()

    def test_actions_are_legal(self, path):
        driver = ppo.load_policy(path)
        actions = np.concatenate(
            [act(driver, frames(64, i), deterministic=False) for i in range(5)]
        )
        assert (np.abs(actions[:, 0]) <= 1).all()
        assert ((actions[:, 1:] >= 0) & (actions[:, 1:] <= 1)).all()

    def test_a_run_directory_stands_for_its_best_checkpoint_or_its_last(self, path):
        assert ppo.load_policy(path.parents[1]).about == {"ticks": 7}
        last = path.rename(path.with_name("last.pt"))  # nothing was validated
        assert ppo.load_policy(path.parents[1]).about == {"ticks": 7}
        last.unlink()
        with pytest.raises(UserError, match=r"without checkpoints/best\.pt or last\.pt"):
            ppo.load_policy(path.parents[1])

    @pytest.mark.parametrize(
        "observation",
        [
            np.zeros((2, 1, 96, 96), np.uint8),
            np.zeros((2, 1, 64, 64), np.float32),
            np.zeros((1, 64, 64), np.uint8),
            np.zeros((3, 1, 64, 64), np.uint8),
        ],
    )
    def test_frames_of_another_kind_are_refused(self, path, observation):
        driver = ppo.load_policy(path)
        with pytest.raises(UserError, match=r"uint8 frames of shape \(2, 1, 64, 64\)"):
            driver.act(driver.initial(2), observation, np.ones(2, bool))


class TestRefusal:
    def test_missing(self, tmp_path):
        with pytest.raises(UserError, match=r"nothing\.pt: no such checkpoint; python train_ppo"):
            ppo.load_policy(tmp_path / "nothing.pt")

    def test_directory(self, tmp_path):
        with pytest.raises(UserError, match="a directory without"):
            ppo.load_policy(tmp_path)

    @pytest.mark.parametrize("content", [b"", b"hello\n", b"PK\x03\x04" + bytes(200)])
    def test_not_a_checkpoint(self, tmp_path, content):
        path = tmp_path / "x.pt"
        path.write_bytes(content)
        with pytest.raises(UserError, match="not a readable checkpoint"):
            ppo.load_policy(path)

    @pytest.mark.parametrize("share", [0.1, 0.5, 0.99])
    def test_cut_short(self, path, share):
        data = path.read_bytes()
        path.write_bytes(data[: int(len(data) * share)])
        with pytest.raises(UserError, match="damaged, cut short"):
            ppo.load_policy(path)

    def test_one_wrong_bit_among_the_weights(self, path, policy):
        data = bytearray(path.read_bytes())
        weights = policy.policy[0].weight.detach().numpy().tobytes()
        data[data.index(weights) + len(weights) // 2] ^= 1
        path.write_bytes(data)
        with pytest.raises(UserError, match="damaged, cut short"):
            ppo.load_policy(path)

    def test_code_in_the_file_is_not_run(self, tmp_path):
        class Bomb:
            def __reduce__(self):
                return (open, (str(tmp_path / "boom"), "w"))

        torch.save({"format": Bomb()}, tmp_path / "x.pt")
        (tmp_path / "y.pt").write_bytes(pickle.dumps(Bomb()))
        for name in ("x.pt", "y.pt"):
            with pytest.raises(UserError, match="not a readable checkpoint"):
                ppo.load_policy(tmp_path / name)
        assert not (tmp_path / "boom").exists()

    def test_other_peoples_weights(self, tmp_path):
        torch.save({"weight": torch.zeros(3)}, tmp_path / "x.pt")
        with pytest.raises(UserError, match="holds no 'format'"):
            ppo.load_policy(tmp_path / "x.pt")
        torch.save([1, 2], tmp_path / "x.pt")
        with pytest.raises(UserError, match="not a checkpoint of ppo"):
            ppo.load_policy(tmp_path / "x.pt")

    def test_another_version(self, path):
        with pytest.raises(UserError, match="'dreamracer/ppo/99'"):
            ppo.load_policy(rewritten(path, format="dreamracer/ppo/99"))

    def test_a_part_is_missing(self, path):
        with pytest.raises(UserError, match="no policy"):
            ppo.load_policy(rewritten(path, policy=None))

    @pytest.mark.parametrize(
        "changes",
        [
            {"network": dataclasses.asdict(NETWORK) | {"hidden": [1024]}},
            {"network": dataclasses.asdict(NETWORK) | {"channels": [4096, 4096]}},
            {"network": dataclasses.asdict(NETWORK) | {"colour": "red"}},
            {"network": 3},
            {"spec": dataclasses.asdict(SPEC) | {"frame_stack": 4}},
            {"spec": dataclasses.asdict(SPEC) | {"size": 10**9}},
            {"policy": {"weight": torch.zeros(2)}},
            {"policy": "weights"},
        ],
    )
    def test_parts_that_do_not_fit(self, path, changes):
        with pytest.raises(UserError, match="do not fit"):
            ppo.load_policy(rewritten(path, **changes))

    def test_weights_that_are_not_numbers(self, path, policy):
        state = policy.state_dict()
        state["log_std"] = torch.full((3,), torch.nan)
        with pytest.raises(UserError, match="not finite"):
            ppo.load_policy(rewritten(path, policy=state))

    @pytest.mark.parametrize(
        ("name", "value", "message"),
        [
            ("log_std", torch.zeros(3, dtype=torch.float64), "log_std is torch.float64"),
            ("log_std", torch.zeros(3).to_sparse(), "torch.sparse_coo"),
            ("low", torch.tensor([-2.0, 0, 0]), "bounds of the controls"),
            ("high", torch.tensor([1.0, 1, torch.nan]), "bounds of the controls"),
        ],
    )
    def test_tensors_of_another_kind(self, path, policy, name, value, message):
        state = policy.state_dict() | {name: value}
        with pytest.raises(UserError, match=rf"best\.pt: .*{message}"):
            ppo.load_policy(rewritten(path, policy=state))

    @pytest.mark.parametrize("about", [3, [1], {"ticks": torch.zeros(2)}, {1: "a"}])
    def test_provenance_that_is_not_plain_data(self, path, about):
        with pytest.raises(UserError, match="'about' is no mapping of plain data"):
            ppo.load_policy(rewritten(path, about=about))


def test_trees_round_trip_through_a_file(tmp_path):
    tree = {
        "bool": np.array([True, False]),
        "nested": {"int": np.arange(6, dtype=np.int64).reshape(2, 3)},
        "unsigned": [np.array([2**64 - 1], np.uint64), np.array([7], np.uint32)],
        "float": np.array([np.nan, 1.5], np.float32),
        "empty": np.zeros((0, 3)),
        "plain": (1, "text", None, 2**100),
    }
    torch.save(to_tensors(tree), tmp_path / "x.pt")
    back = to_arrays(torch.load(tmp_path / "x.pt", weights_only=True))
    assert back.keys() == tree.keys()
    np.testing.assert_equal(back, tree)
    assert back["unsigned"][0].dtype == np.uint64
    assert to_tensors(np.float64(2.5)) == 2.5


def test_snapshots_are_copied():
    array = np.zeros(3)
    tensor = to_tensors({"a": array})["a"]
    array[:] = 1
    assert tensor.tolist() == [0, 0, 0]
