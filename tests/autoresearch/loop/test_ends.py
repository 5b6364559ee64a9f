"""Budgets, stages and headroom: where a campaign stops."""

import dataclasses

import pytest

from autoresearch.loop.verify import verify
from tests.autoresearch import toys
from tests.autoresearch.toys import ledger_of


def test_no_headroom_ends_a_campaign(tmp_path):
    config = toys.config(tmp_path, gates={"headroom": 0.9})
    reason, state = toys.run(config)
    assert reason.startswith("no headroom: the base's progress is 0.4") and not state.candidates


def test_stages_stop_where_they_say(better):
    reason, state = toys.run(better, "propose")
    assert reason == "propose is done" and len(state.candidates) == 3
    assert not any(c.judged for c in state.candidates.values())
    _, state = toys.run(better, "judge")
    assert all("G5" in c.judged for c in state.candidates.values())
    assert not any(c.promoted for c in state.candidates.values())
    _, state = toys.run(better, "promote")
    assert state.candidates["g001_c01"].promoted and state.generation.closed


@pytest.mark.parametrize(
    ("budgets", "reason"),
    [
        ({"ticks": 300}, "budget: the next run would exceed 300 ticks"),
        ({"seconds": 0.05}, "budget: 0.05 seconds of processes are spent"),
    ],
)
def test_budgets_end_a_campaign_and_outlast_it(better, tmp_path, budgets, reason):
    small = dataclasses.replace(
        better, budgets=toys.schema.build(type(better.budgets), {"generations": 1, **budgets})
    )
    assert toys.run(small)[0] == reason
    rows = ledger_of(small)
    again, state = toys.run(small)  # again: what is spent stays spent
    assert again == reason and state.ticks <= 300
    assert ledger_of(small) == rows  # and looking again is no event
    verify(tmp_path / "toy")
    assert toys.run(better)[0] == "all generations are done"  # by a larger one it goes on
