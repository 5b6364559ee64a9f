"""Optuna as proposer."""

import sys

import numpy as np
import pytest

from autoresearch.propose.tpe import TpeProposer
from common.errors import UserError
from tests.autoresearch import toys
from tests.autoresearch.toys import brief, trial


def test_tpe_prefers_what_was_good(tmp_path):
    pytest.importorskip("optuna")
    space = {"skill": {"low": 0.0, "high": 1.0}}
    proposer = TpeProposer(toys.config(tmp_path, space=space))
    rng = np.random.default_rng(0)
    history = tuple(trial({"skill": float(x)}, -abs(x - 0.8)) for x in rng.uniform(0, 1, 40))
    asked = [proposer.propose(brief(ask, history=history)).change["skill"] for ask in range(10)]
    assert np.mean(np.abs(np.array(asked) - 0.8)) < 0.15
    assert proposer.propose(brief(history=history)) == proposer.propose(brief(history=history))


def test_without_optuna_the_error_says_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(UserError, match=r"pip install -e '\.\[research\]'"):
        TpeProposer(toys.config(tmp_path))
