"""Plain words for gates and verdicts; docs/glossary.md explains each of them."""

from __future__ import annotations

from autoresearch.types.verdict import Gate, Outcome

GATES = {
    Gate.SMOKE: "short run",
    Gate.HALVING: "rung",
    Gate.SCREEN: "fresh units",
    Gate.SEEDS: "fresh seeds",
    Gate.MECHANISM: "prediction",
}
OUTCOMES = {
    Outcome.WIN: "better",
    Outcome.FUTILE: "gains too little",
    Outcome.HARM: "harms a guard",
    Outcome.CAP: "not proved",
    Outcome.LOSS: "not better",
    Outcome.HOPELESS: "cannot win any more",
    Outcome.NOT_TRIED: "not tried",
}


def gate_in_words(name: str) -> str:
    """A gate with its name: "fresh seeds (G4)"; "proposed" for none."""
    return f"{GATES[Gate(name.partition('.')[0])]} ({name})" if name else "proposed"


def verdict_in_words(word: str) -> str:
    """What `Verdict.word` means; words such as passed, crash or confirmed are plain already."""
    return OUTCOMES.get(word, word)
