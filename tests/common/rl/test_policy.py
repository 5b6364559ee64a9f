"""Carries can be taken apart, put together and saved, whatever they are made of."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pytest
import torch

from common.rl.noise import generator, initial_draws, standard_normal
from common.rl.policy import (
    ObservationSpec,
    TelemetrySpec,
    index,
    load_state_dict,
    put,
    select_observation,
    state_dict,
)


class Pair(NamedTuple):
    a: np.ndarray
    b: torch.Tensor


@dataclass(frozen=True)
class Record:
    pair: Pair
    nothing: None
    named: dict


def carry(n, offset=0):
    return Record(
        Pair(offset + np.arange(n), torch.arange(2.0 * n).reshape(n, 2) + offset),
        None,
        {"x": (np.full((n, 3), offset, np.float32), np.zeros(n, bool))},
    )


def same(one, two):
    one, two = state_dict(one), state_dict(two)
    return one.keys() == two.keys() and all(np.array_equal(one[name], two[name]) for name in one)


def test_a_carry_is_indexed_and_put_back_by_cars():
    whole, part = carry(5), carry(2, offset=100)
    rows = np.array([3, 1])
    new = put(whole, rows, part)
    assert same(index(new, rows), part) and same(whole, carry(5))
    mask = np.array([True, False, True, False, True])
    assert same(index(new, mask), index(whole, mask))
    assert type(new) is Record and type(new.pair) is Pair and new.nothing is None
    first = index(whole, [0])
    first.pair.a[:] = 7
    assert whole.pair.a[0] == 0  # a copy
    assert index(None, rows) is None and put(None, rows, None) is None


def test_a_carry_is_saved_as_plain_arrays_and_restored(tmp_path):
    before = carry(4, offset=3)
    names = state_dict(before)
    assert list(names) == ["pair.a", "pair.b", "named.x.0", "named.x.1"]
    np.savez(tmp_path / "carry.npz", **names)
    with np.load(tmp_path / "carry.npz", allow_pickle=False) as file:
        after = load_state_dict(carry(4), dict(file))
    assert same(before, after) and isinstance(after.pair.b, torch.Tensor)
    assert after.pair.b.dtype == torch.float32
    single = np.arange(3)
    assert same(load_state_dict(np.zeros(3, int), state_dict(single)), single)
    assert load_state_dict(None, state_dict(None)) is None


def test_another_policys_carry_is_refused():
    with pytest.raises(ValueError, match=r"pair\.a of the saved carry is int64 \(5,\), not"):
        load_state_dict(carry(4), state_dict(carry(5)))
    with pytest.raises(ValueError, match=r"of another policy: carry, named\.x\.0"):
        load_state_dict(carry(4), {"carry": np.zeros(4)})


def test_a_policy_observes_frames_or_the_telemetry_that_it_names():
    info = {"speed": np.array([1.0, 2.0]), "steer": np.array([3.0, 4.0]), "track_seed": [5, 6]}
    frames = np.zeros((2, 96, 96, 3), np.uint8)
    assert select_observation(ObservationSpec(), frames, info) is frames
    spec = TelemetrySpec(("steer", "speed"))
    observation = select_observation(spec, frames, info)
    assert observation.dtype == np.float32 and observation.shape == (2, *spec.shape)
    assert observation.tolist() == [[3, 1], [4, 2]]
    assert {name: list(v) for name, v in spec.split(observation).items()} == {
        "steer": [3, 4],
        "speed": [1, 2],
    }
    assert select_observation(TelemetrySpec(), frames, info).shape == (2, 0)


def test_draws_belong_to_a_car_and_a_decision():
    draws = initial_draws(3, [5, 9, 2**70 + 5])
    first, second = standard_normal(draws, 2), standard_normal(draws.advance(), 2)
    alone = initial_draws(1, [9]).advance()
    assert np.array_equal(standard_normal(alone, 2)[0], second[1])
    assert len({*first.ravel(), *second.ravel()}) == 12  # nothing is drawn twice
    # They are what numpy's own generator gives: a later version draws the same again.
    np.testing.assert_allclose(generator(5, 0).standard_normal(2), first[0])
    assert np.array_equal(standard_normal(draws, 2, stream=0), first)
    assert not np.array_equal(standard_normal(draws, 2, stream=1), first)
    many = standard_normal(initial_draws(4000), 2)
    assert abs(many.mean()) < 0.05 and many.std() == pytest.approx(1, abs=0.03)
    with pytest.raises(ValueError, match="2 cars need as many seeds, not 1"):
        initial_draws(2, [1])
