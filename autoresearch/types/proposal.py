"""A proposal: a change of a configuration, and what the change should do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from autoresearch.types.overrides import rounded
from common.errors import UserError

MAX_TEXT = 2000
"""Characters of a hypothesis, or of a proposed value that is text."""


@dataclass(frozen=True)
class Proposal:
    """What a proposer says.

    Attributes:
        change: key to value, against the parent's configuration.
        hypothesis: why that should be better.
        observable: a judged measure that the mechanism must move.
        sign: 1 if it should grow, -1 if it should fall.
        source: who proposed it.
        cost: what the proposal itself cost, such as {"tokens": 812}.
        evidence: what tells how it came about, such as hashes of a prompt and a reply.
    """

    change: dict[str, Any]
    hypothesis: str
    observable: str
    sign: int
    source: str = ""
    cost: dict[str, int] = field(default_factory=dict)
    evidence: dict[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, content: Any, source: str) -> Proposal:
        """From what a model, or a transcript, says: plain data of untrusted make.

        Raises `UserError` with what is wrong: the four fields and no others, of the right types.
        """
        if not isinstance(content, Mapping):
            raise UserError("a proposal is a JSON object")
        wanted = ("change", "hypothesis", "observable", "sign")
        absent = [name for name in wanted if name not in content]
        foreign = [ascii(str(name)[:40])[1:-1] for name in content if name not in wanted]
        if absent or foreign:
            told = [f"no {', '.join(absent)}"] if absent else []
            told += [f"unknown {', '.join(foreign)}"] if foreign else []
            raise UserError(f"a proposal has {', '.join(wanted)}; this one: {'; '.join(told)}")
        change, hypothesis = content["change"], content["hypothesis"]
        observable, sign = content["observable"], content["sign"]
        if not isinstance(change, Mapping) or not all(isinstance(key, str) for key in change):
            raise UserError("change is an object of key and value")
        for key, value in change.items():
            if not isinstance(value, str | int | float | bool):
                raise UserError(f"change.{ascii(key[:40])[1:-1]} is no plain value")
        # It is printed: what could move the cursor would forge the lines around it.
        texts = [value for pair in change.items() for value in pair if isinstance(value, str)]
        if not all(text.isprintable() and len(text) <= MAX_TEXT for text in texts):
            raise UserError(f"change is in printable text of at most {MAX_TEXT} characters")
        if (
            not isinstance(hypothesis, str)
            or not 0 < len(hypothesis) <= MAX_TEXT
            or not hypothesis.isprintable()
        ):
            raise UserError(f"hypothesis is one line of text, 1 to {MAX_TEXT} characters")
        if not isinstance(observable, str) or not observable.isprintable():
            raise UserError("observable is the name of a measure")
        if isinstance(sign, bool) or sign not in (1, -1):
            raise UserError("sign is 1 or -1")
        return cls(rounded(change), hypothesis, observable, int(sign), source)
