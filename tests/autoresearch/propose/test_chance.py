"""Random search stays in the space, and gives the same for the same brief."""

import numpy as np
import pytest

from autoresearch.config import Range
from autoresearch.judge.admission import objections
from autoresearch.propose.chance import RandomProposer, drawn
from tests.autoresearch import toys
from tests.autoresearch.toys import BASE, brief


@pytest.mark.parametrize(
    "span",
    [
        Range(0.1, 2.0),
        Range(1e-5, 1e-2, log=True),
        Range(1, 3, integer=True),
        Range(2, 64, log=True, integer=True),
        Range(choices=("a", 3, True)),
    ],
)
def test_what_is_drawn_is_accepted(span):
    rng = np.random.default_rng(0)
    values = [drawn(span, rng) for _ in range(200)]
    assert all(span.accepts(value) is None for value in values)
    assert len(set(map(str, values))) >= 3


class TestRandom:
    def test_the_same_brief_gives_the_same_and_the_next_another(self, tmp_path):
        proposer = RandomProposer(toys.config(tmp_path))
        assert (
            proposer.propose(brief(3)) == proposer.propose(brief(3)) != proposer.propose(brief(4))
        )

    def test_all_of_them_may_be_tried(self, tmp_path):
        config = toys.config(tmp_path, proposer={"keys": 3})
        proposer, sizes = RandomProposer(config), set()
        for ask in range(60):
            proposal = proposer.propose(brief(ask))
            sizes.add(len(proposal.change))
            reasons = objections(proposal, config, {}, BASE, {})
            assert reasons == [] or "changes nothing" in reasons[0]
        assert sizes == {1, 2, 3}
