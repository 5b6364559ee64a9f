"""The gates G1 to G5 as pure functions: measurements in, a verdict with reasons and numbers out.

G0 is in `admission.py`. Throughout, `rows` are a candidate's measures by unit and `parent` those of
its parent, on the same units.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from autoresearch.config import Gates, Guard, Measure
from autoresearch.judge.evidence import e_process, scaled
from autoresearch.types.artifact import Rows, TrainArtifact
from autoresearch.types.overrides import strays
from autoresearch.types.verdict import (
    GuardEvidence,
    GuardTest,
    MechanismVerdict,
    Outcome,
    Prediction,
    RungVerdict,
    ScreenVerdict,
    SeedsVerdict,
    SmokeVerdict,
)
from common.statistics import mean_interval, paired_difference, sign_flip_test


def smoke(
    run: TrainArtifact,
    control: TrainArtifact,
    base: Mapping[str, Any],
    overrides: Mapping[str, Any],
) -> SmokeVerdict:
    """G1, of a first short run: it has the configuration that was proposed, and shows no failure
    that the parent's own short run does not show.

    Args:
        run, control: the candidate's and the parent's.
        base: the base's configuration at the same budget and seed, dotted key to value.
        overrides: of the candidate against it.
    """
    reasons = strays(base, run.config, overrides)
    for name, value in run.screens.items():
        if value and not control.screens.get(name):
            reasons.append(f"{name} shows, which the parent does not show")
    return SmokeVerdict(not reasons, reasons, dict(run.screens))


def rung(
    means: Mapping[str, float], control: float | None, sign: int, eta: int
) -> dict[str, RungVerdict]:
    """G2: the better 1 / eta of the candidates go on; of equal ones the earlier.

    Args:
        means: of the primary measure, by candidate; control: the parent's, for the record.
    """
    order = sorted(means, key=lambda name: -sign * means[name])
    kept = order[: -(-len(order) // eta)]
    verdicts = {}
    for name, mean in means.items():
        rank = order.index(name) + 1
        reasons = [] if name in kept else [f"rank {rank} of {len(order)}"]
        verdicts[name] = RungVerdict(name in kept, reasons, mean, control, rank)
    return verdicts


def screen(rows: Rows, parent: Rows, gates: Gates) -> ScreenVerdict:
    """G3: is this checkpoint better than the parent's, unit by unit, and does it harm nothing?

    The outcome is WIN; FUTILE, a gain of gates.effect is disproved; HARM, a guard is proved to be
    beyond its margin or ceiling; CAP, the last unit was reached; or None, if more units are needed.
    Only a win passes.

    Raises `ValueError` for a difference beyond the range that a measure states.
    """
    primary = gates.primary
    gain = primary.counted(primary.sign * _differences(rows, parent, primary))
    evidence = _evidence(primary, gain, primary.width)
    against = _evidence(primary, gates.effect - gain, primary.width + gates.effect)
    guards = {guard.measure.name: _guard_evidence(guard, rows, parent) for guard in gates.guards}
    harms = [
        f"{name} is beyond its {limit} (e = {breaks:.3g})"
        for name, guard in guards.items()
        for limit, breaks in (("margin", guard.margin_breaks), ("ceiling", guard.ceiling_breaks))
        if breaks >= gates.stop
    ]
    unproved = [
        f"no proof that {name} holds"
        for name, guard in guards.items()
        if min(guard.margin_holds, guard.ceiling_holds) < gates.proof
    ]
    better = float(evidence[-1]) >= gates.win
    outcome, reasons = None, []
    if better and not unproved:
        outcome = Outcome.WIN
    elif harms:
        outcome, reasons = Outcome.HARM, harms
    elif float(against.max()) >= gates.stop:
        outcome = Outcome.FUTILE
        reasons = [f"a gain of {gates.effect:g} is disproved (e = {float(against.max()):.3g})"]
    elif len(rows) >= gates.cap:
        outcome = Outcome.CAP
        reasons = [] if better else [f"no proof of a gain (e = {float(evidence[-1]):.3g})"]
        reasons += unproved
    return ScreenVerdict(
        passed=outcome is Outcome.WIN,
        reasons=reasons,
        outcome=outcome,
        units=len(rows),
        gain=mean_interval(gain),
        e_value=float(evidence[-1]),
        e_curve=[float(f"{value:.4g}") for value in evidence],
        guards=guards,
    )


def seeds(
    runs: Sequence[Rows], parents: Sequence[Rows], needed: int, alpha: float, gates: Gates
) -> SeedsVerdict:
    """G4: is this configuration better than the parent's, training seed by training seed?

    An exact one-sided sign-flip test of the seeds' means. Every guard has two more such tests, of
    its margin and of its ceiling. The outcome is WIN, LOSS, HOPELESS (no result of the remaining
    seeds could reach alpha), or None if more seeds are needed.

    Args:
        runs, parents: rows by seed, in the order of the seeds, as many as there are so far.
        needed: how many seeds the claim takes.
        alpha: what this claim may spend of the error budget.
    """
    primary = gates.primary
    gains = [
        primary.sign * float(_differences(rows, parent, primary).mean())
        for rows, parent in zip(runs, parents, strict=True)
    ]

    def verdict(outcome: Outcome | None, reasons: list[str], **tests: Any) -> SeedsVerdict:
        return SeedsVerdict(
            outcome is Outcome.WIN, reasons, outcome, len(gains), needed, alpha, gains,
            mean_interval(gains), **tests,
        )  # fmt: skip

    if len(gains) < needed:
        large = 1e3 * (float(np.abs(gains).sum()) or 1.0)
        best = sign_flip_test([*gains, *[large] * (needed - len(gains))], "greater")
        if best <= alpha:
            return verdict(None, [])
        reason = f"p could not get below {best:.3g} any more, {alpha:.3g} is needed"
        return verdict(Outcome.HOPELESS, [reason])
    p = sign_flip_test(gains, "greater")
    reasons = [] if p <= alpha else [f"p = {p:.3g}, {alpha:.3g} is needed"]
    tests = {guard.measure.name: _guard_test(guard, runs, parents) for guard in gates.guards}
    for guard, test in zip(gates.guards, tests.values(), strict=True):
        if test.margin_p > gates.guard_alpha:
            reasons.append(f"{guard.measure.name} may be worse by more than {guard.margin:g}")
        if test.ceiling_p > gates.guard_alpha:
            reasons.append(f"{guard.measure.name} may be beyond {guard.ceiling:g}")
    return verdict(Outcome.LOSS if reasons else Outcome.WIN, reasons, p=p, guards=tests)


def mechanism(
    observable: str,
    sign: int,
    values: Sequence[float | None],
    parent: Sequence[float | None],
    by: str,
) -> MechanismVerdict:
    """G5: did what the hypothesis predicts come? It is recorded and decides nothing.

    Args:
        observable, sign: the measure that was to grow (1) or to fall (-1).
        values, parent: the observable, by unit or seed; None where it was not measured.
        by: what the pairs are: training seeds, or units of one training seed.
    """
    pairs = [(a, b) for a, b in zip(values, parent, strict=True) if a is not None and b is not None]
    if len(pairs) < 2:
        reasons = [f"{observable} was not measured often enough"]
        return MechanismVerdict(False, reasons, Prediction.INCONCLUSIVE, observable, sign)
    change = paired_difference(*zip(*pairs, strict=True))
    verdict = Prediction.INCONCLUSIVE
    if sign * change.low > 0 and sign * change.high > 0:
        verdict = Prediction.CONFIRMED
    elif sign * change.low < 0 and sign * change.high < 0:
        verdict = Prediction.REFUTED
    return MechanismVerdict(
        verdict is Prediction.CONFIRMED, [], verdict, observable, sign, change, by
    )


def _guard_evidence(guard: Guard, rows: Rows, parent: Rows) -> GuardEvidence:
    measure = guard.measure
    worse = measure.counted(-measure.sign * _differences(rows, parent, measure))
    level = np.array([row[measure.name] for row in rows.values()], np.float64)
    room = measure.counted(measure.sign * (level - guard.ceiling))
    margin, margin_width = guard.margin - worse, measure.width + guard.margin
    return GuardEvidence(
        difference=float(np.mean(worse)),
        mean=float(level.mean()),
        margin_holds=float(_evidence(measure, margin, margin_width)[-1]),
        margin_breaks=float(_evidence(measure, -margin, margin_width)[-1]),
        ceiling_holds=float(_evidence(measure, room, measure.width)[-1]),
        ceiling_breaks=float(_evidence(measure, -room, measure.width)[-1]),
    )


def _guard_test(guard: Guard, runs: Sequence[Rows], parents: Sequence[Rows]) -> GuardTest:
    measure = guard.measure
    worse = [
        -measure.sign * float(_differences(rows, parent, measure).mean())
        for rows, parent in zip(runs, parents, strict=True)
    ]
    levels = [float(np.mean([row[measure.name] for row in rows.values()])) for rows in runs]
    room = [measure.sign * (level - guard.ceiling) for level in levels]
    return GuardTest(
        difference=mean_interval(worse),
        mean=mean_interval(levels),
        margin_p=sign_flip_test([guard.margin - value for value in worse], "greater"),
        ceiling_p=sign_flip_test(room, "greater"),
    )


def _evidence(measure: Measure, values: np.ndarray, width: float) -> np.ndarray:
    try:
        return e_process(scaled(values, width))
    except ValueError as error:
        raise ValueError(f"{measure.name}: {error}") from None


def _differences(rows: Rows, parent: Rows, measure: Measure) -> np.ndarray:
    name = measure.name
    return np.array([rows[unit][name] - parent[unit][name] for unit in rows], np.float64)
