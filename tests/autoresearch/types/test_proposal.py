"""What a proposal must be."""

import pytest

from autoresearch.types.proposal import Proposal
from common.errors import UserError
from tests.autoresearch.toys import GOOD


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
