"""What claims may spend of the error budget, and the seeds that they take."""

import pytest

from autoresearch.config.error_budget import claim_alpha, claim_seeds, fewest_seeds


def test_the_error_budget_lasts_for_ever():
    assert sum(claim_alpha(0.05, g) for g in range(1, 100_000)) == pytest.approx(0.05, rel=1e-4)
    assert claim_alpha(0.05, 2, claims=3) == pytest.approx(claim_alpha(0.05, 2) / 3)


def test_seeds_that_a_budget_of_five_percent_demands():
    assert [fewest_seeds(claim_alpha(0.05, g)) for g in (1, 2, 3, 4)] == [6, 8, 9, 10]
    assert fewest_seeds(claim_alpha(0.05, 1, claims=3)) == 7
    assert claim_seeds(0.4, 0.05, 0) == 5 and claim_seeds(0.4, None, 1) == 3
    with pytest.raises(ValueError, match="at most 20"):
        fewest_seeds(1e-9)
    with pytest.raises(ValueError, match="between 0 and 1"):
        fewest_seeds(1.0)
