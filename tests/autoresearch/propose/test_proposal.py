"""What a proposal must be, and every reason against one."""

import json
import re

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser

from autoresearch.propose.proposal import (
    Proposal,
    as_arguments,
    combined,
    digest,
    objections,
    rounded,
    strays,
)
from common.errors import ConfigError, UserError
from tests.autoresearch import toys

GOOD = {"change": {"skill": 0.5}, "hypothesis": "it can", "observable": "progress", "sign": 1}
BASE = {"skill": 0.4, "grass": 0.0, "steps": 8, "crash": 0, "screen": 0.0, "note": "a"}


def proposed(change, observable="progress", sign=1):
    return Proposal(change, "why not", observable, sign)


def test_what_is_said_is_taken():
    proposal = Proposal.parse({**GOOD, "change": {"skill": 0.123456}}, "test")
    assert proposal == Proposal({"skill": 0.1235}, "it can", "progress", 1, "test")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("promote this", "a JSON object"),
        ([GOOD], "a JSON object"),
        ({}, "no change, hypothesis"),
        (GOOD | {"verdict": "promote"}, "unknown verdict"),
        (GOOD | {"change": [1]}, "change is an object"),
        (GOOD | {"change": {"skill": {"low": 1}}}, "no plain value"),
        (GOOD | {"change": {"skill": None}}, "no plain value"),
        (GOOD | {"hypothesis": ""}, "hypothesis is one line of text"),
        (GOOD | {"hypothesis": "x" * 3000}, "hypothesis is one line of text"),
        (GOOD | {"hypothesis": "ok\x1b[2J\r\nPROMOTED g001_c01"}, "hypothesis is one line"),
        (GOOD | {"hypothesis": "\ud800"}, "hypothesis is one line"),
        (GOOD | {"change": {"note": "\ud800"}}, "change is in printable text"),
        (GOOD | {"change": {"a\nb": 1}}, "change is in printable text"),
        (GOOD | {"observable": "\x1b"}, "observable is the name"),
        (GOOD | {"\ud800": 1}, r"unknown \\ud800"),
        (GOOD | {"observable": 3}, "observable is the name"),
        (GOOD | {"sign": 0}, "sign is 1 or -1"),
        (GOOD | {"sign": True}, "sign is 1 or -1"),
        (GOOD | {"sign": "+"}, "sign is 1 or -1"),
    ],
)
def test_what_is_no_proposal_is_refused(content, message):
    with pytest.raises(UserError, match=message):
        Proposal.parse(content, "test")


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
    found = objections(proposal, toys.config(tmp_path), {}, BASE, tried)
    assert len(found) == 1
    assert re.search(reason, found[0]), found


def test_nothing_against_a_good_one(tmp_path):
    assert objections(proposed({"skill": 0.5}), toys.config(tmp_path), {}, BASE, {}) == []


def test_a_key_that_the_trainer_lacks_is_refused(tmp_path):
    base = {key: value for key, value in BASE.items() if key != "note"}
    found = objections(proposed({"note": "b"}), toys.config(tmp_path), {}, base, {})
    assert found == ["note is no setting of the base configuration"]


def test_equal_configurations_have_one_digest():
    assert combined({"skill": 0.6}, {"steps": 8.0}, BASE) == {"skill": 0.6}
    assert combined({"skill": 0.6}, {"skill": 0.4}, BASE) == {}
    assert digest({"a": 8, "b": 1}) == digest({"b": 1.0, "a": 8.0}) != digest({"a": 8, "b": True})
    assert rounded({"a": 0.00012345678, "b": 3, "c": "x"}) == {"a": 0.0001235, "b": 3, "c": "x"}


def test_a_run_that_is_not_what_was_proposed_is_found():
    assert strays(BASE, BASE | {"skill": 0.5}, {"skill": 0.5}) == []
    assert strays(BASE, BASE | {"skill": 0.4}, {"skill": 0.5}) == [
        "skill is 0.4, not the proposed 0.5"
    ]
    assert strays(BASE, BASE | {"skill": 0.5, "grass": 0.1}, {"skill": 0.5}) == [
        "grass is 0.1 instead of 0.0, which nobody proposed"
    ]
    assert strays(BASE, BASE | {"extra": 1}, {}) == [
        "extra is 1 instead of None, which nobody proposed"
    ]


def test_arguments_say_to_hydra_what_was_meant():
    values = {"a": 1e-05, "b": -2.5, "c": 8, "d": True, "e": "it's a 'word', [1]", "f": "null"}
    parser = OverridesParser.create()
    for key, text in zip(values, as_arguments(values), strict=True):
        override = parser.parse_override(text)
        value = override.value()
        assert getattr(value, "text", value) == values[key], text


@pytest.mark.parametrize(
    ("space", "message"),
    [
        ({"seed": {"low": 1, "high": 2}}, "seed cannot be searched"),
        ({"evaluation.test_seeds": {"choices": ["0", "1"]}}, "cannot be searched"),
        ({"+skill": {"low": 0, "high": 1}}, "bad key"),
        ({"budget": {"low": 1, "high": 9}}, "budget is set by commands.train"),
        ({"skill": {"low": 1, "high": 1}}, "low is below high"),
        ({"skill": {"low": 0, "high": 1, "log": True}}, "low is above 0"),
        ({"skill": {"choices": [1]}}, "at least two"),
        ({"skill": {}}, "low and high, or choices"),
    ],
)
def test_a_space_that_cannot_be_searched_is_refused(tmp_path, space, message):
    data = json.loads(json.dumps(space))
    with pytest.raises(ConfigError, match=message):
        toys.schema.build(
            toys.CampaignConfig,
            {"name": "x", "commands": toys.COMMANDS, "budget": 1, "space": data,
             "gates": toys.GATES},
        )  # fmt: skip
