"""A campaign that several test modules run."""

import pytest

from tests.autoresearch import toys


@pytest.fixture
def better(tmp_path):
    """A campaign that is given a better configuration and two that fail."""
    proposer = toys.transcript(
        tmp_path / "t.jsonl", {"skill": 0.7}, {"crash": 3}, {"skill": 0.75, "screen": 1}
    )
    return toys.config(
        tmp_path, gates=toys.QUICK, proposer=proposer, budgets={"generations": 1, "grace": 0.5}
    )
