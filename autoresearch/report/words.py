"""A candidate's way and numbers in plain words, for tables and pages."""

from __future__ import annotations

from autoresearch.loop.state import Candidate
from autoresearch.types.verdict import SeedsVerdict, Verdict
from autoresearch.types.words import gate_in_words, verdict_in_words
from common.statistics import Estimate

FEW = 2
"""Up to so many values are shown one by one, without an interval."""


def verdict(candidate: Candidate) -> str:
    """What the last gate that decided said, in words; empty before the first."""
    if candidate.promoted:
        return "promoted"
    return verdict_in_words(candidate.verdict)


def outcome(candidate: Candidate) -> str:
    """Where a candidate's way ended: "promoted", "gains too little at fresh units (G3)"."""
    if candidate.promoted:
        return "promoted"
    if not candidate.last_gate:
        return "not judged"
    return f"{verdict(candidate)} at {gate_in_words(candidate.last_gate)}"


def interval(estimate: Estimate) -> str:
    """`+0.031 [-0.004, 0.066]`: a mean with its 95% interval, if that is of enough values."""
    if estimate.low is None or estimate.n <= FEW:
        return f"{estimate.mean:+.3g}"
    return f"{estimate.mean:+.3g} [{estimate.low:.3g}, {estimate.high:.3g}]"


def gain(candidate: Candidate) -> str:
    """A candidate's gain over its parent, with its interval; empty if it was not measured.

    One or two seeds have no interval worth showing: then it is the gain of each seed.
    """
    seeds = candidate.seeds
    if seeds is not None and len(seeds.gains) <= FEW:
        return ", ".join(f"{value:+.3g}" for value in seeds.gains)
    return interval(candidate.gain) if candidate.gain else ""


def evidence(candidate: Candidate) -> str:
    """The p-value of its test over seeds, else the e-value of its screen; empty for neither."""
    seeds, screen = candidate.seeds, candidate.screen
    if seeds is not None and seeds.p is not None:
        return f"p-value {seeds.p:.3g}"
    return f"e-value {screen.e_value:.3g}" if screen is not None else ""


def prediction(candidate: Candidate) -> str:
    """Whether what its hypothesis predicts came: confirmed, refuted, inconclusive; or empty."""
    return candidate.mechanism.word if candidate.mechanism else ""


def count(number: int, what: str) -> str:
    """`1 seed`, `2 seeds`."""
    return f"{number} {what}" + ("" if number == 1 else "s")


def resumed(times: int) -> str:
    """How often a campaign was resumed."""
    words = {0: "never interrupted", 1: "resumed once"}
    return words.get(times, f"resumed {times} times")


def final(candidate: str, judged: Verdict) -> str:
    """What the sealed units said about the winner."""
    passed, reasons = judged.passed, "; ".join(judged.reasons)
    measured = f", gain {interval(judged.gain)}" if isinstance(judged, SeedsVerdict) else ""
    held = "held up" if passed else "did not hold up"
    return f"final: {candidate} {held}{measured}" + (f" ({reasons})" if reasons else "")
