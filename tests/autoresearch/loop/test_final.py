"""The winner on sealed units: once, after the search, whatever comes later."""

import dataclasses

import pytest

from autoresearch.execute.results import Unusable
from autoresearch.loop.campaign import Campaign
from autoresearch.loop.verify import verify
from common.errors import UserError
from tests.autoresearch import toys
from tests.autoresearch.toys import QUICK, ledger_of


class TestFinal:
    """The winner on sealed units: once, after the search, whatever comes later."""

    def test_a_gain_holds_up_and_is_not_measured_twice(self, better, tmp_path):
        toys.run(better)
        reason, state = toys.run(better, "final")
        assert reason == "the gain held up" and state.final.passed
        assert state.final.gain.n == 5 and state.final.p == 2**-5
        sealed = [r for r in state.runs.values() if getattr(r.task, "sealed", False)]
        assert len(sealed) == 10 and {r.task.first for r in sealed} == {500}
        used = {r.task.seed for r in state.runs.values() if hasattr(r.task, "seed")}
        rows = ledger_of(better)
        opened = next(row.number for row in rows if row.kind == "opened")
        earlier = {
            row.data["task"]["seed"]
            for row in rows[:opened]
            if row.kind == "claimed" and "seed" in row.data["task"]
        }
        assert len(used) == len(earlier) + 5
        again, _ = toys.run(better, "final")
        assert again == reason and ledger_of(better)[len(rows) :] == []
        verify(tmp_path / "toy")

    def test_it_ends_the_search_for_good(self, better):
        toys.run(better)
        toys.run(better, "final")
        more = dataclasses.replace(
            better, budgets=dataclasses.replace(better.budgets, generations=9)
        )
        reason, state = toys.run(more)
        assert reason == "its sealed units have been opened" and len(state.generations) == 1

    def test_not_before_the_end(self, better):
        with pytest.raises(UserError, match="has not ended, and sealed units are opened once"):
            toys.run(better, "final")
        toys.run(better, "propose")
        with pytest.raises(UserError, match="has not ended"):
            toys.run(better, "final")

    def test_a_spent_budget_is_an_end_and_does_not_bound_the_final(self, better, tmp_path):
        toys.run(better)
        _, state = toys.run(better)
        spent = dataclasses.replace(
            better, budgets=dataclasses.replace(better.budgets, generations=2, ticks=state.ticks)
        )
        assert toys.run(spent)[0].startswith("budget: ")
        assert toys.run(spent, "final")[0] == "the gain held up"
        verify(tmp_path / "toy")

    def test_without_a_promotion_nothing_is_opened(self, tmp_path):
        proposer = toys.transcript(tmp_path / "t.jsonl", {"skill": 0.1})
        config = toys.config(tmp_path, gates=QUICK, proposer=proposer, budgets={"generations": 1})
        toys.run(config)
        rows = ledger_of(config)
        reason, state = toys.run(config, "final")
        assert reason.startswith("nothing was promoted") and state.opened is None
        assert ledger_of(config) == rows

    def test_a_winner_that_fails_on_a_fresh_seed_has_not_held_up(self, better, tmp_path):
        toys.run(better)
        with Campaign.opened(better, lambda text: None) as campaign:
            collect = campaign.harness.collect

            def failing(run):
                if getattr(run.task, "sealed", False):
                    raise Unusable("it went wrong")
                return collect(run)

            campaign.harness.collect = failing
            assert campaign.run("final") == "the gain did not hold up"
            assert campaign.state.final.failure == "unusable"
        verify(tmp_path / "toy")
