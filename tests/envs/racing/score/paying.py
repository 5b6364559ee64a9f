"""Situations in which a reward is paid, and a reward of nothing but what a test is about."""

from dataclasses import fields, replace

import numpy as np

from envs.racing import RewardConfig
from envs.racing.score.terms import TERMS
from envs.racing.sim.track import PLAYFIELD

NOTHING = replace(
    RewardConfig(),
    **{
        field.name: 0
        for field in fields(RewardConfig)
        if field.name in ("tile", "progress", "finish", "time", "playfield")
    },
)


def lone(**coefficients) -> RewardConfig:
    """A reward of nothing but the given coefficients."""
    return replace(NOTHING, **coefficients)


def paid(engine, name=None):
    """The last step's only term, and that nothing else was paid; or 0 if nothing was."""
    terms = dict(zip(TERMS, engine.terms[0, 0], strict=True))
    others = {key: value for key, value in terms.items() if value and key != name}
    assert not others, f"{others} paid beside {name}"
    assert engine.rewards[0, 0] == terms.get(name, 0.0)
    return terms.get(name, 0.0)


def action(steer=0.0, gas=0.0, brake=0.0):
    return np.array([[[steer, gas, brake]]])


def sharp_corner(track, sign=None):
    """Arc position at the beginning of the sharpest corner (of a side)."""
    curvature = track.centreline[:, 4] if sign is None else sign * track.centreline[:, 4]
    where = np.argmax(np.abs(curvature) if sign is None else curvature)
    return where * track.length / len(curvature) - 15


def straight(track):
    window = 80
    bend = np.abs(track.centreline[:, 4])
    calm = np.convolve(np.r_[bend, bend[:window]], np.ones(window), "valid")
    return np.argmin(calm) * track.length / len(bend) + 30


def grass(track):
    """A place on the grass, as far out as the corner of the playfield."""
    return PLAYFIELD - 20, PLAYFIELD - 20
