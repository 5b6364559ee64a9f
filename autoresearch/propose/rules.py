"""What a driving coach would change: named failures and their remedies, one setting at a time.

Rules are data over dotted keys and measures, so they serve any campaign whose space has the keys.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from autoresearch.config import Range

Measures = Mapping[str, float | None]


@dataclass(frozen=True)
class Rule:
    """One change and why.

    Attributes:
        name: of the rule.
        key: that it changes.
        factor: by which it multiplies the parent's value; a second attempt goes twice as far.
        hypothesis: what that should do; `observable` and `sign` say it as a measure.
        when: whether the parent's measures call for it; None for plain tuning.
        start: what to multiply where the parent has 0, or nothing.
    """

    name: str
    key: str
    factor: float
    hypothesis: str
    observable: str
    sign: int
    when: Callable[[Measures], bool] | None = None
    start: float | None = None

    def moved(self, value: Any, span: Range, strength: int) -> Any:
        """The new value inside `span`, or None where this rule cannot change the old one."""
        if span.choices:
            return self._next_choice(value, span, strength)
        if isinstance(value, bool) or not isinstance(value, int | float | None):
            return None
        if not value:
            if self.start is None:
                return None
            moved = self.start * self.factor ** (strength - 1)
        else:
            moved = value * self.factor**strength
        moved = min(max(moved, span.low), span.high)
        if span.integer:
            moved = round(moved)
        return None if moved == value else moved

    def _next_choice(self, value: Any, span: Range, strength: int) -> Any:
        """The choice `strength` places further on, up for a factor above 1, else down."""
        if value not in span.choices:
            return None
        place = span.choices.index(value) + (strength if self.factor > 1 else -strength)
        return span.choices[place] if 0 <= place < len(span.choices) else None


def above(name: str, limit: float) -> Callable[[Measures], bool]:
    """The measure is known and above `limit`."""
    return lambda measures: (value := measures.get(name)) is not None and value > limit


def below(name: str, limit: float) -> Callable[[Measures], bool]:
    """The measure is known and below `limit`."""
    return lambda measures: (value := measures.get(name)) is not None and value < limit


THROTTLE = above("diagnostics/throttle_saturation", 0.5)
STEERING = above("diagnostics/steering_collapse", 0.5)
CIRCLING = above("diagnostics/circling", 0.5)
HACKING = above("diagnostics/off_track_hacking", 0.5)
COLLAPSE = above("diagnostics/entropy_collapse", 0.5)
LEAVING = above("judged/off_track_rate", 0.02)
SLOW = below("judged/mean_speed", 45.0)

RULES: tuple[Rule, ...] = (
    Rule("throttle saturation: brake", "ppo.network.log_std_max", 0.7,
         "A pedal that explores more widely finds the brake.",
         "mean_speed", -1, THROTTLE),
    Rule("throttle saturation: bends", "reward.corner_entry", 1.5,
         "A price for entering bends too fast teaches the brake.",
         "mean_speed", -1, THROTTLE, start=-0.5),
    Rule("throttle saturation: target", "reward.corner_target_speed", 0.85,
         "A lower target speed in bends teaches the brake.",
         "mean_speed", -1, THROTTLE),
    Rule("steering collapse: entropy", "ppo.entropy_coefficient", 2.0,
         "More entropy keeps the steering from sticking to one lock.",
         "steering_variance", 1, STEERING, start=0.003),
    Rule("steering collapse: rate", "ppo.learning_rate", 0.6,
         "Smaller steps keep one bad batch from turning the wheel for good.",
         "steering_variance", 1, STEERING),
    Rule("circling: progress", "reward.progress", 1.5,
         "What leads along the road outweighs what circling collects.",
         "progress", 1, CIRCLING),
    Rule("circling: time", "reward.time", 2.0,
         "Standing and circling cost more time.",
         "progress", 1, CIRCLING),
    Rule("off-track hacking: grass", "reward.off_track", 2.0,
         "No progress on grass is worth its price.",
         "off_track_rate", -1, HACKING, start=-2.0),
    Rule("entropy collapse: noise", "ppo.network.log_std_final", 0.85,
         "A higher last noise keeps it learning to the end.",
         "progress", 1, COLLAPSE),
    Rule("leaves the road: grass", "reward.off_track", 1.5,
         "Dearer grass keeps it on the road.",
         "off_track_rate", -1, LEAVING, start=-2.0),
    Rule("leaves the road: margin", "reward.wheels_off", 1.5,
         "A dearer edge keeps a margin to the grass.",
         "off_track_rate", -1, LEAVING, start=-0.5),
    Rule("leaves the road: foresight", "ppo.gamma", 1.004,
         "Longer foresight brakes earlier.",
         "off_track_rate", -1, LEAVING),
    Rule("slow: margin", "reward.wheels_off", 0.6,
         "A cheaper edge lets it use the whole road.",
         "mean_speed", 1, SLOW),
    Rule("slow: time", "reward.time", 3.0,
         "Dearer time is worth driving faster for.",
         "mean_speed", 1, SLOW),
    Rule("steps too large", "ppo.learning_rate", 0.7,
         "Updates move the policy further than its data supports; smaller steps keep more of them.",
         "progress", 1, above("ppo/approx_kl", 0.03)),
    Rule("clipped too often", "ppo.epochs", 0.7,
         "A third of the ratios are clipped: later passes learn little and distort the rest.",
         "progress", 1, above("ppo/clip_fraction", 0.3)),
    Rule("values unexplained", "ppo.value_coefficient", 1.6,
         "A better value function gives less noisy advantages.",
         "progress", 1, below("ppo/explained_variance", 0.5)),
    Rule("rate up", "ppo.learning_rate", 1.5,
         "The budget is short: larger steps learn more of it.",
         "progress", 1),
    Rule("epochs up", "ppo.epochs", 1.4,
         "Few decisions: each can be learned from more often.",
         "progress", 1),
    Rule("shorter rollouts", "ppo.num_steps", 0.5,
         "Twice as many updates from the same decisions.",
         "progress", 1),
    Rule("fewer streams", "ppo.num_envs", 0.5,
         "Twice as many updates from the same decisions, with longer views each.",
         "progress", 1),
    Rule("noise fades earlier", "ppo.network.log_std_fade", 0.8,
         "More of the budget is spent driving as the judged policy does.",
         "progress", 1),
    Rule("less noise", "ppo.network.log_std_final", 1.2,
         "The trained and the judged driver become one.",
         "off_track_rate", -1),
    Rule("horizon down", "ppo.gamma", 0.99,
         "A shorter horizon has less variance.",
         "progress", 1),
    Rule("advantages longer", "ppo.lam", 1.02,
         "Less bias of an untrained value function.",
         "progress", 1),
    Rule("steadier steering", "reward.steer_smoothness", 2.0,
         "A price for jerks calms the steering and costs no speed.",
         "steering_variance", -1, start=-0.1),
    Rule("world model: rate down", "optimiser.learning_rate", 0.6,
         "Smaller steps fit the long horizon better.",
         "ssim", 1),
    Rule("world model: KL", "loss.free_nats", 0.5,
         "Fewer free nats put more of the scene into the prior's reach.",
         "ssim", 1),
    Rule("world model: prior", "loss.dynamics", 2.0,
         "A prior that is trained harder moves on by itself.",
         "ssim", 1),
    Rule("world model: picture", "loss.image", 1.5,
         "More weight on the picture keeps edges sharp.",
         "ssim", 1),
)  # fmt: skip
