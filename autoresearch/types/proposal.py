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
    """A change, a reason for it, and a prediction.

    Attributes:
        change: dotted key to value, against the parent's configuration.
        hypothesis: why that should be better.
        observable: a judged measure that has to move if the hypothesis is right.
        sign: 1 if it should grow, -1 if it should fall.
        source: who proposed it.
        cost: of the proposal itself, such as {"tokens": 812}.
        evidence: where it came from, such as hashes of a prompt and a reply.
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
        """A proposal from a model's answer, or from a line of a file: data that nobody checked.

        It has to have four fields (change, hypothesis, observable, sign) and no others, of the
        right types; otherwise raises `UserError`, which says what is wrong.
        """
        if not isinstance(content, Mapping):
            raise UserError("a proposal is a JSON object")
        fields = ("change", "hypothesis", "observable", "sign")
        absent = [name for name in fields if name not in content]
        foreign = [ascii(str(name)[:40])[1:-1] for name in content if name not in fields]
        if absent or foreign:
            faults = [f"no {', '.join(absent)}"] if absent else []
            faults += [f"unknown {', '.join(foreign)}"] if foreign else []
            raise UserError(f"a proposal has {', '.join(fields)}; this one: {'; '.join(faults)}")
        change, hypothesis = content["change"], content["hypothesis"]
        observable, sign = content["observable"], content["sign"]
        if not isinstance(change, Mapping) or not all(isinstance(key, str) for key in change):
            raise UserError("change is an object of key and value")
        for key, value in change.items():
            if not isinstance(value, str | int | float | bool):
                raise UserError(f"change.{ascii(key[:40])[1:-1]} is no plain value")
        # It is printed. A character that moves the cursor could forge the lines around it.
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
