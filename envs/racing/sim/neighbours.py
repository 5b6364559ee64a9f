"""What a car can tell of the cars around it."""

from __future__ import annotations

from typing import NamedTuple

from envs.racing.sim.kernel import kernel


class Neighbours(NamedTuple):
    """One car's view of the others in its world.

    Empty, because cars drive through each other. Gaps and contacts are fields of this tuple that
    `look_around` fills; the reward's terms and the endings find them in `Quantities.neighbours`.
    """


@kernel(inline="always", counted=False)
def look_around(cars, wheels, agent, track):
    """The view of car number `agent`. cars: (agents,) car records; wheels: (agents, 4) WHEEL."""
    return Neighbours()
