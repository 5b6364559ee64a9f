"""The earlier record's promotions, and why these gates would not have promoted them.

The earlier record is a published study of the same task. Its numbers are given as published: three
episodes per candidate, on tracks that no other candidate drove, scored by a reward that the
candidate's own configuration may change.
"""

from __future__ import annotations

from dataclasses import dataclass

from autoresearch.config import Gates
from autoresearch.judge.evidence import BETS
from common.statistics import mean_interval


@dataclass(frozen=True)
class Claim:
    """A promotion and the evidence for it.

    Attributes:
        name: of the run or candidate.
        about: what was claimed.
        generation: in which it was promoted.
        episodes: on how many it was judged; `scores`, where they are known.
        paired: whether its parent drove the same tracks.
        training_seeds: with how many seeds the configuration was trained.
        tried: how many candidates it was the best of.
        native: whether the score is a native quantity, which no configuration can change.
        off_track_rate: its share of ticks off the road.
        observable, expected, observed: what its hypothesis predicted of which measure, and what
            was measured.
    """

    name: str
    about: str
    generation: int
    episodes: int
    paired: bool
    training_seeds: int
    tried: int
    native: bool
    off_track_rate: float
    scores: tuple[float, ...] = ()
    observable: str = ""
    expected: str = ""
    observed: str = ""


CLAIMS = (
    Claim(
        "run_008", "reward 205.46, the best of at least 17 rewritten training scripts",
        generation=1, episodes=3, paired=False, training_seeds=1, tried=17, native=False,
        off_track_rate=0.036,
    ),
    Claim(
        "g003_c03", "reward 232.58 and progress 0.7376, against its parent's 0.666",
        generation=3, episodes=3, paired=False, training_seeds=1, tried=3, native=False,
        off_track_rate=0.268, scores=(483.5, 490.7, -276.4), observable="mean_brake",
        expected="more braking", observed="mean_brake stayed at 0.007",
    ),
)  # fmt: skip


def objections_to(claim: Claim, gates: Gates) -> list[str]:
    """Every reason why `gates` do not promote a claim, by gate."""
    alpha, seeds = gates.claim(claim.generation)
    reasons = []
    if not claim.native:
        reasons.append("G0: its score is a reward that its own configuration can change")
    if not claim.paired:
        reasons.append(
            f"G3: its {claim.episodes} episodes were on tracks that its parent did not drive; "
            "differences are taken track by track"
        )
    # The most that n bets can win is (1 + b)^n for the largest stake b.
    most = (1 + BETS[-1]) ** claim.episodes
    if most < gates.win:
        reasons.append(
            f"G3: {claim.episodes} tracks cannot give more evidence than {most:.1f}, however they "
            f"end; {gates.win:g} is needed"
        )
    if claim.scores:
        interval = mean_interval(claim.scores)
        reasons.append(
            f"G3: its episodes {', '.join(f'{s:g}' for s in claim.scores)} have a mean between "
            f"{interval.low:.0f} and {interval.high:.0f} (95 %)"
        )
    for guard in gates.guards:
        if guard.measure.name == "off_track_rate" and claim.off_track_rate > guard.ceiling:
            reasons.append(
                f"guard: off the road for {claim.off_track_rate:g} of the ticks, at most "
                f"{guard.ceiling:g} is allowed"
            )
    if claim.training_seeds < seeds:
        reasons.append(
            f"G4: {claim.training_seeds} training seed; in generation {claim.generation} a "
            f"promotion needs {seeds} paired ones (level {alpha:.3g}), the best of {claim.tried} "
            "or not"
        )
    if claim.expected:
        reasons.append(f"G5: it predicted {claim.expected}, and {claim.observed}")
    return reasons
