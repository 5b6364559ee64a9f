import itertools
import random

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from common import seeding
from common.errors import UserError


def test_derived_seeds_never_change():
    # Pinned: changing them would silently change every published run.
    assert seeding.derive(0) == 11941335231899214937
    assert seeding.derive(0, "env") == 5966510029813522509
    assert seeding.derive(7, "policy", 3) == 17409520981403681022


@given(st.lists(st.lists(st.text() | st.integers(), max_size=4), min_size=2, max_size=8))
def test_derived_seeds_are_64_bit_and_distinct(paths):
    unique = {tuple((type(n), n) for n in path): path for path in paths}
    seeds = {seeding.derive(1, *path) for path in unique.values()}
    assert len(seeds) == len(unique)
    assert all(0 <= seed < 2**64 for seed in seeds)


def test_derive_takes_numpy_ints_and_refuses_slips():
    assert seeding.derive(np.int64(3), np.int32(4)) == seeding.derive(3, 4)
    for slip in (True, 1.0, None):
        with pytest.raises(TypeError):
            seeding.derive(0, slip)


def test_seed_everything_repeats_all_three_generators():
    def draws():
        return random.random(), np.random.random(), torch.rand(()).item()

    seeding.seed_everything(5)
    first = draws()
    seeding.seed_everything(5)
    assert draws() == first
    seeding.seed_everything(6)
    assert all(a != b for a, b in zip(draws(), first, strict=True))


def test_splits_partition_the_seeds():
    ranges = list(seeding.SPLITS.values())
    assert ranges[0][0] == 0 and ranges[-1][1] == 2**31 - 1
    for (_, last), (first, _) in itertools.pairwise(ranges):
        assert first == last + 1


@pytest.mark.parametrize(
    ("seed", "split"),
    [
        (0, "test"), (99, "test"), (100, "probe"), (499, "probe"), (500, "sealed"),
        (999, "sealed"), (1000, "validation"), (1999, "validation"), (2000, "reserved"),
        (9999, "reserved"), (10_000, "train"), (999_999, "train"), (1_000_000, "fresh"),
    ],
)  # fmt: skip
def test_split_edges(seed, split):
    assert seeding.split_of(seed) == split
    for other in seeding.SPLITS:
        if other == split:
            assert seeding.check_track_seed(seed, other) == seed
        else:
            with pytest.raises(UserError, match=f"{seed} belongs to the {split} split"):
                seeding.check_track_seed(seed, other)


@pytest.mark.parametrize("seed", [0, np.uint32(2**32 - 1), 2**63, 2**64, 10**50])
def test_without_a_split_every_whole_number_is_a_track(seed):
    assert seeding.check_track_seed(seed, None) == seed
    assert type(seeding.check_track_seed(seed, None)) is int


@pytest.mark.parametrize("seed", [-1, np.int64(-5), 1.0, True, "7", None])
def test_what_is_no_whole_number_from_0_on_is_no_seed(seed):
    with pytest.raises(UserError, match="a seed is a whole number from 0 on"):
        seeding.check_track_seed(seed, None)


def test_nothing_is_drawn_from_sealed_tracks():
    for split in (None, "train", "test"):
        seeding.check_split(split)
    with pytest.raises(UserError, match="sealed: 500-999 are opened once"):
        seeding.check_split("sealed")
    with pytest.raises(UserError, match=r"split is one of test, .* not 'training'"):
        seeding.check_split("training")
    seeding.refuse_sealed([499, 1000, 2**70])
    with pytest.raises(UserError, match="track seed 999 is sealed"):
        seeding.refuse_sealed([3, 999])


@pytest.mark.parametrize("seed", [-1, 2**31])
def test_seeds_outside_all_splits(seed):
    with pytest.raises(UserError, match=str(seed)):
        seeding.split_of(seed)


def test_parse_seeds_examples():
    assert seeding.parse_seeds("0-99") == list(range(100))
    assert seeding.parse_seeds("3, 7,10-12") == [3, 7, 10, 11, 12]
    assert len(seeding.parse_seeds("0-99999")) == 100_000


@given(st.lists(st.tuples(st.integers(0, 50_000), st.integers(0, 40)), min_size=1, max_size=6))
def test_parse_seeds_agrees_with_its_definition(spans):
    text = ",".join(f"{a}-{a + n}" if n else str(a) for a, n in spans)
    expected = [seed for a, n in spans for seed in range(a, a + n + 1)]
    if len(set(expected)) == len(expected):
        assert seeding.parse_seeds(text) == expected
    else:
        with pytest.raises(UserError, match="named twice"):
            seeding.parse_seeds(text)


@given(st.text(max_size=12) | st.from_regex(r"[0-9,\- ]{1,14}", fullmatch=True))
def test_parse_seeds_returns_seeds_or_a_clear_error(text):
    try:
        seeds = seeding.parse_seeds(text)
    except UserError as error:
        assert len(str(error)) > 10
    else:
        assert 0 < len(seeds) <= seeding.MAX_SEEDS
        assert all(type(seed) is int and 0 <= seed < 2**31 for seed in seeds)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no seed or range"),
        ("1,,2", "no seed or range"),
        ("1-2-3", "no seed or range"),
        ("-5", "no seed or range"),
        ("1.5", "no seed or range"),
        ("\u0663", "no seed or range"),
        ("9-3", "runs backwards"),
        ("0-100000", "more than 100,000"),
        ("0-9,20-2000000", "more than 100,000"),
        ("5,1-9", "seed 5 is named twice"),
        ("99999999999", "no seed or range"),
        ("2147483648", "outside"),
    ],
)
def test_parse_seeds_errors(text, message):
    with pytest.raises(UserError, match=message):
        seeding.parse_seeds(text)
