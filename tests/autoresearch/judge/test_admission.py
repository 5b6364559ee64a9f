"""G0: every reason against a proposal."""

import re

import pytest

from autoresearch.judge.admission import objections
from autoresearch.types.overrides import digest
from autoresearch.types.proposal import Proposal
from tests.autoresearch import toys
from tests.autoresearch.toys import BASE


def proposed(change, observable="progress", sign=1):
    return Proposal(change, "why not", observable, sign)


@pytest.mark.parametrize(
    ("proposal", "reason"),
    [
        (proposed({}), "it changes nothing"),
        (proposed({"skill": 10**400}), "skill: a number that large is not in"),
        (proposed({"seed": 3}), "seed may not be searched"),
        (proposed({"+skill": 0.5}), r"\+skill may not be searched"),
        (proposed({"evaluation.every": 3}), "may not be searched"),
        (proposed({"skill": 1.5}), "skill: 1.5 is not in 0 to 1"),
        (proposed({"skill": float("nan")}), "skill: nan is not in"),
        (proposed({"skill": True}), "skill: True is not a number"),
        (proposed({"skill": "0.5"}), "'0.5' is not a number"),
        (proposed({"steps": 2.5}), "2.5 is not a whole number"),
        (proposed({"note": "d"}), "'d' is not one of a, b, c"),
        (proposed({"skill": 0.4}), "the parent has these values already"),
        (proposed({"skill": 0.6}), "the same configuration as g001_c01"),
        (proposed({"skill": 0.5}, "reward"), "reward is no measure"),
        (proposed({"skill": 0.5}, sign=2), "sign is 1 or -1"),
    ],
)
def test_reasons_against_a_proposal(tmp_path, proposal, reason):
    tried = {digest({"skill": 0.6}): "g001_c01"}
    reasons = objections(proposal, toys.config(tmp_path), {}, BASE, tried)
    assert len(reasons) == 1
    assert re.search(reason, reasons[0]), reasons


def test_nothing_against_a_good_one(tmp_path):
    assert objections(proposed({"skill": 0.5}), toys.config(tmp_path), {}, BASE, {}) == []


def test_a_key_that_the_trainer_lacks_is_refused(tmp_path):
    base = {key: value for key, value in BASE.items() if key != "note"}
    reasons = objections(proposed({"note": "b"}), toys.config(tmp_path), {}, base, {})
    assert reasons == ["note is no setting of the base configuration"]
