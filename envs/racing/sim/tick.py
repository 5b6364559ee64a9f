"""One tick of one car: forces, contacts, motion, and progress along the road."""

from __future__ import annotations

from envs.racing.sim.contacts import touch
from envs.racing.sim.dynamics import drive, move, origin_x, origin_y
from envs.racing.sim.kernel import kernel
from envs.racing.sim.progress import pass_tiles, update


@kernel(counted=False)
def advance(car, wheels, track, action, grips, visited, contacted, fresh):
    """Move a car by one tick.

    Args:
        car, wheels: records of one car and its four wheels.
        track: `TrackArrays` of its track.
        action: (3,) steer [-1, 1], positive to the right; gas, brake [0, 1].
        grips: (2,) friction of road and grass as a share of the reference's road.
        visited, contacted, fresh: see `contacts.touch`.

    Returns:
        Number of entries of `fresh`.
    """
    drive(car, wheels, action[0], action[1], action[2], grips[0], grips[1])
    touched, count = touch(car, wheels, track, visited, contacted, fresh)
    move(car, action[0])
    car.steer_command = action[0]
    update(car, track, origin_x(car), origin_y(car), touched)
    pass_tiles(car, track, visited)
    car.tick += 1
    return count
