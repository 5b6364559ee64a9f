"""What claims may spend of the error budget, and the seeds that they take."""

import pytest

from autoresearch.config.error_budget import seeds_needed, seeds_of, share_of


def test_the_error_budget_lasts_for_ever():
    assert sum(share_of(0.05, g) for g in range(1, 100_000)) == pytest.approx(0.05, rel=1e-4)
    assert share_of(0.05, 2, claims=3) == pytest.approx(share_of(0.05, 2) / 3)


def test_seeds_that_a_budget_of_five_percent_demands():
    assert [seeds_needed(share_of(0.05, g)) for g in (1, 2, 3, 4)] == [6, 8, 9, 10]
    assert seeds_needed(share_of(0.05, 1, claims=3)) == 7
    assert seeds_of(0.4, 0.05, 0) == 5 and seeds_of(0.4, None, 1) == 3
    with pytest.raises(ValueError, match="at most 20"):
        seeds_needed(1e-9)
    with pytest.raises(ValueError, match="between 0 and 1"):
        seeds_needed(1.0)
