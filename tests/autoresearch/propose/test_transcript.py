"""Proposals from a file."""

import json

import pytest

from autoresearch.propose.brief import Exhausted
from autoresearch.propose.transcript import TranscriptProposer
from common.errors import UserError
from tests.autoresearch.toys import GOOD, brief


class TestTranscript:
    def test_in_order_and_then_no_more(self, tmp_path):
        path = tmp_path / "t.jsonl"
        path.write_text(json.dumps(GOOD) + "\nnonsense\n")
        proposer = TranscriptProposer(path)
        assert proposer.propose(brief(0)).change == {"skill": 0.5}
        with pytest.raises(UserError, match="proposal 2 is no JSON"):
            proposer.propose(brief(1))
        with pytest.raises(Exhausted, match="at its end"):
            proposer.propose(brief(2))
        with pytest.raises(UserError, match=r"proposer\.transcript=.*nowhere"):
            TranscriptProposer(tmp_path / "nowhere")
