"""The gates as pure functions: measurements in, a verdict with its numbers and reasons out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from autoresearch.config import Gates, Measure
from autoresearch.judge.evidence import e_process, scaled
from autoresearch.propose.proposal import strays
from common.statistics import mean_interval, paired_difference, sign_flip_test

Rows = Mapping[str, Mapping[str, Any]]
"""Measures by unit."""
Verdict = dict[str, Any]
"""`passed`, `reasons` in words, and numbers."""


def smoke(
    own: Mapping[str, Any],
    control: Mapping[str, Any],
    base: Mapping[str, Any],
    overrides: Mapping[str, Any],
) -> Verdict:
    """G1 of a first short run: it is what was proposed, and shows no failure that the parent's
    own short run does not show.

    Args:
        own, control: artifacts of the two runs.
        base: the base's configuration at the same budget and seed, dotted.
        overrides: of the candidate against it.
    """
    reasons = strays(base, own["config"], overrides)
    screens = {}
    for name, value in own["screens"].items():
        screens[name] = value
        if value and not control["screens"].get(name):
            reasons.append(f"{name} shows, which the parent does not show")
    return {"passed": not reasons, "reasons": reasons, "screens": screens}


def failure(reason: str, detail: str) -> Verdict:
    """Of a candidate whose run failed: typed, and without any number."""
    return {"passed": False, "reasons": [f"{reason}: {detail}"], "failure": reason}


def rung(means: Mapping[str, float], control: float, sign: int, eta: int) -> dict[str, Verdict]:
    """G2: the better 1 / eta of the candidates go on, ties in the order given.

    Args:
        means: primary by candidate; control: the parent's, for the record.
    """
    order = sorted(means, key=lambda name: -sign * means[name])
    kept = order[: -(-len(order) // eta)]
    return {
        name: {
            "passed": name in kept,
            "reasons": [] if name in kept else [f"rank {order.index(name) + 1} of {len(order)}"],
            "mean": means[name],
            "control": control,
            "rank": order.index(name) + 1,
        }
        for name in means
    }


def screen(own: Rows, parent: Rows, gates: Gates) -> Verdict:
    """G3: is this checkpoint better than the parent's, unit by unit, and does it harm nothing?

    `outcome` is win, futile (proved to gain less than gates.effect), harm (a guard proved to be
    beyond its margin or ceiling), cap (the last unit was reached) or None, if more units are
    wanted. Only a win passes.

    Raises `ValueError` for a difference beyond the range that a measure states.
    """
    primary, units = gates.primary, list(own)
    gain = primary.counted(primary.sign * _differences(own, parent, primary))
    evidence = _evidence(primary, gain, primary.width)
    against = _evidence(primary, gates.effect - gain, primary.width + gates.effect)
    guards, proved, harmed = {}, [], []
    for guard in gates.guards:
        measure = guard.measure
        worse = measure.counted(-measure.sign * _differences(own, parent, measure))
        level = np.array([own[unit][measure.name] for unit in units], np.float64)
        room = measure.counted(measure.sign * (level - guard.ceiling))
        held = [
            ("margin", guard.margin - worse, measure.width + guard.margin),
            ("ceiling", room, measure.width),
        ]
        told: dict[str, Any] = {"difference": float(np.mean(worse)), "mean": float(level.mean())}
        for name, values, width in held:
            holds = float(_evidence(measure, values, width)[-1])
            breaks = float(_evidence(measure, -values, width)[-1])
            told |= {f"{name}_holds": holds, f"{name}_breaks": breaks}
            proved.append(holds >= gates.proof)
            if breaks >= gates.stop:
                harmed.append(f"{measure.name} is beyond its {name} (e = {breaks:.3g})")
        guards[measure.name] = told
    won = float(evidence[-1]) >= gates.win
    outcome, reasons = None, []
    if won and all(proved):
        outcome = "win"
    elif harmed:
        outcome, reasons = "harm", harmed
    elif float(against.max()) >= gates.stop:
        outcome = "futile"
        reasons = [f"a gain of {gates.effect:g} is disproved (e = {float(against.max()):.3g})"]
    elif len(units) >= gates.cap:
        outcome = "cap"
        reasons = [] if won else [f"no proof of a gain (e = {float(evidence[-1]):.3g})"]
        reasons += [
            f"no proof that {name} holds"
            for name, told in guards.items()
            if min(told["margin_holds"], told["ceiling_holds"]) < gates.proof
        ]
    return {
        "passed": outcome == "win",
        "outcome": outcome,
        "reasons": reasons,
        "units": len(units),
        "gain": mean_interval(gain).to_dict(),
        "e_value": float(evidence[-1]),
        "e_curve": [float(f"{value:.4g}") for value in evidence],
        "guards": guards,
    }


def configuration(
    own: Sequence[Rows], parent: Sequence[Rows], seeds: int, alpha: float, gates: Gates
) -> Verdict:
    """G4: is this configuration better than the parent's, training seed by training seed?

    An exact one-sided sign-flip test of the seeds' means, and for each guard one of its margin and
    one of its ceiling. `outcome` is win, loss, hopeless (no result of the seeds to come could
    reach alpha) or None, if more seeds are wanted.

    Args:
        own, parent: rows by seed, as far as there are any, in the order of the seeds.
        seeds: how many there will be.
        alpha: what this claim may spend of the error budget.
    """
    primary = gates.primary
    gains = [primary.sign * float(_differences(a, b, primary).mean())
             for a, b in zip(own, parent, strict=True)]  # fmt: skip
    told: Verdict = {
        "passed": False,
        "outcome": None,
        "reasons": [],
        "seeds": len(gains),
        "wanted": seeds,
        "alpha": alpha,
        "gains": gains,
        "gain": mean_interval(gains).to_dict(),
    }
    if len(gains) < seeds:
        large = 1e3 * (float(np.abs(gains).sum()) or 1.0)
        best = sign_flip_test([*gains, *[large] * (seeds - len(gains))], "greater")
        if best > alpha:
            told["outcome"] = "hopeless"
            told["reasons"] = [f"p could not get below {best:.3g} any more, {alpha:.3g} is needed"]
        return told
    p = sign_flip_test(gains, "greater")
    reasons = [] if p <= alpha else [f"p = {p:.3g}, {alpha:.3g} is needed"]
    guards = {}
    for guard in gates.guards:
        measure = guard.measure
        worse = [-measure.sign * float(_differences(a, b, measure).mean())
                 for a, b in zip(own, parent, strict=True)]  # fmt: skip
        levels = [_mean(rows, measure) for rows in own]
        margin = sign_flip_test([guard.margin - x for x in worse], "greater")
        ceiling = sign_flip_test([measure.sign * (x - guard.ceiling) for x in levels], "greater")
        guards[measure.name] = {
            "difference": mean_interval(worse).to_dict(),
            "mean": mean_interval(levels).to_dict(),
            "margin_p": margin,
            "ceiling_p": ceiling,
        }
        if margin > gates.guard_alpha:
            reasons.append(f"{measure.name} may be worse by more than {guard.margin:g}")
        if ceiling > gates.guard_alpha:
            reasons.append(f"{measure.name} may be beyond {guard.ceiling:g}")
    won = not reasons
    return told | {
        "passed": won,
        "outcome": "win" if won else "loss",
        "reasons": reasons,
        "p": p,
        "guards": guards,
    }


def mechanism(
    observable: str, sign: int, own: Sequence[float | None], parent: Sequence[float | None], by: str
) -> Verdict:
    """G5: did what the hypothesis predicts come? Never a reason to promote, or not to.

    Args:
        own, parent: the observable by unit of comparison, None where it was not measured.
        by: what the units are, seeds or tracks.
    """
    pairs = [(a, b) for a, b in zip(own, parent, strict=True) if a is not None and b is not None]
    if len(pairs) < 2:
        return {
            "passed": False,
            "verdict": "inconclusive",
            "reasons": [f"{observable} was not measured often enough"],
            "observable": observable,
            "sign": sign,
        }
    change = paired_difference(*zip(*pairs, strict=True))
    verdict = "inconclusive"
    if sign * change.low > 0 and sign * change.high > 0:
        verdict = "confirmed"
    elif sign * change.low < 0 and sign * change.high < 0:
        verdict = "refuted"
    return {
        "passed": verdict == "confirmed",
        "verdict": verdict,
        "reasons": [],
        "observable": observable,
        "sign": sign,
        "change": change.to_dict(),
        "by": by,
    }


def _evidence(measure: Measure, values: np.ndarray, width: float) -> np.ndarray:
    try:
        return e_process(scaled(values, width))
    except ValueError as error:
        raise ValueError(f"{measure.name}: {error}") from None


def _differences(own: Rows, parent: Rows, measure: Measure) -> np.ndarray:
    name = measure.name
    return np.array([own[unit][name] - parent[unit][name] for unit in own], np.float64)


def _mean(rows: Rows, measure: Measure) -> float:
    return float(np.mean([row[measure.name] for row in rows.values()]))
