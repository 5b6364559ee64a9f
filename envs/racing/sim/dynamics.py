"""The car: CarRacing-v3's vehicle as one rigid body with kinematic steering.

Gymnasium drives five Box2D bodies joined by stiff motors. The joints hold the wheels so firmly that
the whole car moves as one body with the summed mass and inertia, and the front wheels turn at the
motor's speed; what is left is a few dozen arithmetic operations per tick. Measured against Box2D in
experiments/records/parity.json.

Order of one tick, as in the reference: forces from the contacts of the last tick, then contacts at
the present pose, then velocities, then positions (semi-implicit Euler, 1/50 s).
"""

from __future__ import annotations

import math

import numpy as np

from envs.racing.sim.kernel import kernel

DT = 1.0 / 50.0
SIZE = 0.02
ENGINE_POWER = 100_000_000 * SIZE * SIZE
WHEEL_INERTIA = 4000 * SIZE * SIZE
FRICTION_LIMIT = 1_000_000 * SIZE * SIZE
SLIP_STIFFNESS = 205_000 * SIZE * SIZE
BRAKE_STEP = 15.0
"""rad/s that a full brake takes from a wheel per tick; the reference has no time step here."""
WHEEL_RADIUS = 27 * SIZE
WHEEL_HALF_WIDTH = 14 * SIZE
STEER_SPEED = 3.0
STEER_GAIN = 50.0
STEER_LIMIT = 0.4
MAX_SPEED = 100.0
"""Box2D moves no body by more than two units in a tick."""

WHEEL_XY = np.array([(-55, 80), (55, 80), (-55, -82), (55, -82)], np.float64) * SIZE
HULL = tuple(
    np.array(polygon, np.float64) * SIZE
    for polygon in (
        [(-60, 130), (60, 130), (60, 110), (-60, 110)],
        [(-15, 120), (15, 120), (20, 20), (-20, 20)],
        [
            (25, 20),
            (50, -10),
            (50, -40),
            (20, -90),
            (-20, -90),
            (-50, -40),
            (-50, -10),
            (-25, 20),
        ],
        [(-50, -120), (50, -120), (50, -90), (-50, -90)],
    )
)


def _polygon_mass(polygon: np.ndarray, density: float) -> tuple[float, np.ndarray, float]:
    """Mass, centroid and inertia about the origin of a uniform polygon."""
    a, b = polygon, np.roll(polygon, -1, 0)
    cross = a[:, 0] * b[:, 1] - a[:, 1] * b[:, 0]
    area = cross.sum() / 2
    centroid = ((a + b) * cross[:, None]).sum(0) / (6 * area)
    second = (cross * ((a * a + a * b + b * b).sum(1))).sum() / 12
    return abs(area) * density, centroid, abs(second) * density


def _wheel_mass() -> float:
    return 0.1 * 4 * WHEEL_HALF_WIDTH * WHEEL_RADIUS


def _car_mass() -> tuple[float, float, float]:
    """Mass, y of the centre of mass and inertia about it, hull and wheels together."""
    corners = np.array([(-1, 1), (1, 1), (1, -1), (-1, -1)])
    wheel = corners * (WHEEL_HALF_WIDTH, WHEEL_RADIUS)
    parts = [_polygon_mass(polygon, 1.0) for polygon in HULL]
    parts += [_polygon_mass(wheel + at, 0.1) for at in WHEEL_XY]
    mass = sum(m for m, _, _ in parts)
    centre = sum(m * c for m, c, _ in parts) / mass
    inertia = sum(i for _, _, i in parts) - mass * float(centre @ centre)
    return float(mass), float(centre[1]), float(inertia)


ROAD_FRICTION, GRASS_FRICTION = 1.0, 0.6
"""Of CarRacing-v3's tyres, as a share of the grip on its road."""

MASS, COM_Y, INERTIA = _car_mass()

WHEEL_YAW_INERTIA = _wheel_mass() * 4 * (WHEEL_HALF_WIDTH**2 + WHEEL_RADIUS**2) / 12
"""Of one wheel, about its own centre."""

# The reference creates the wheels of a turned car where they would be on an unturned one, and lets
# the joints pull them home in the first step; hull and wheels meet with their common centre of mass
# and (to first order) their common angle kept.
START_TWIST = _wheel_mass() * float((WHEEL_XY**2).sum()) / INERTIA
HULL_SHARE = 1.0 - 4 * _wheel_mass() / MASS
WHEELS_Y = float(WHEEL_XY[:, 1].mean())
HULL_COM_Y = (COM_Y - (1.0 - HULL_SHARE) * WHEELS_Y) / HULL_SHARE

BODY_FIELDS = [
    ("com_x", "f8"),  # centre of mass; the hull's origin lies -COM_Y ahead of it
    ("com_y", "f8"),
    ("angle", "f8"),  # the car faces (-sin angle, cos angle)
    ("vx", "f8"),
    ("vy", "f8"),
    ("speed", "f8"),
    ("yaw_rate", "f8"),
    ("steer", "f8"),  # front-wheel angle, positive to the left
    ("steer_rate", "f8"),
    ("rear_twist", "f8"),  # rear-wheel angle, which only a reset makes different from 0
    ("gas", "f8"),  # of the rear wheels: the pedal, rate limited
    ("steer_command", "f8"),  # of the latest tick
    ("s", "f8"),  # foot on the centreline, 0 <= s < length
    ("lateral", "f8"),
    ("curvature", "f8"),
    ("arc", "f8"),  # credited arc length since the start
    ("arc_delta", "f8"),  # credited in this step (all ticks of an action repeat)
    ("tick", "i4"),
    ("tiles_visited", "i4"),
    ("first_tile", "i4"),  # under the car at the start
    ("tiles_passed", "i4"),  # of the first lap, behind the car for good
    ("tiles_missed", "i4"),  # of those, never touched
    ("active", "u1"),  # its episode has not ended
]
"""What the world knows of a car. A car's record also holds what the score remembers of it: see
`envs.racing.score.car`."""

WHEEL = np.dtype([("omega", "f8"), ("phase", "f8"), ("on_road", "u1")], align=True)


@kernel(inline="always", counted=False)
def origin_x(car):
    return car.com_x + math.sin(car.angle) * COM_Y


@kernel(inline="always", counted=False)
def origin_y(car):
    return car.com_y - math.cos(car.angle) * COM_Y


@kernel(inline="always", counted=False)
def wheels_off(wheels):
    """How many of a car's four wheels are off the road."""
    return 4 - (wheels[0].on_road + wheels[1].on_road + wheels[2].on_road + wheels[3].on_road)


@kernel
def place(car, x, y, beta):
    """Put a car at rest where the reference's car stands after its reset at (x, y, beta)."""
    twist = -START_TWIST * math.sin(beta)
    car.com_x = x - HULL_SHARE * HULL_COM_Y * math.sin(beta)
    car.com_y = y + HULL_SHARE * HULL_COM_Y * math.cos(beta) + (1.0 - HULL_SHARE) * WHEELS_Y
    car.angle = beta + twist
    car.steer = -twist
    car.rear_twist = -twist


@kernel
def roll(car, wheels, speed):
    """Let a placed car roll straight ahead, all wheels turning with it."""
    car.vx, car.vy = -speed * math.sin(car.angle), speed * math.cos(car.angle)
    car.speed = speed
    for index in range(4):
        wheels[index].omega = speed / WHEEL_RADIUS


@kernel(counted=False)
def drive(car, wheels, steer, gas, brake, road_grip, grass_grip):
    """Tyre forces of one tick: changes wheel speeds and the body's velocity, not its position.

    Args:
        car, wheels: records of one car and its four wheels.
        steer: [-1, 1], positive to the right; gas, brake: [0, 1].
        road_grip, grass_grip: friction as a share of the reference's road.
    """
    # The pedal rises by at most 0.1 a tick and falls at once.
    car.gas += min(gas - car.gas, 0.1)
    sin, cos = math.sin(car.angle), math.cos(car.angle)
    # Box2D's joints gave the wheels their velocities before the last step turned the car, so the
    # arms of these velocities are those of the pose before.
    before = car.angle - DT * car.yaw_rate
    sin_before, cos_before = math.sin(before), math.cos(before)
    front, rear = car.angle + car.steer, car.angle + car.rear_twist
    front_x, front_y = -math.sin(front), math.cos(front)
    rear_x, rear_y = -math.sin(rear), math.cos(rear)
    force_x, force_y, torque = 0.0, 0.0, 0.0
    for index in range(4):
        wheel = wheels[index]
        arm_x = WHEEL_XY[index, 0]
        arm_y = WHEEL_XY[index, 1] - COM_Y
        rx = cos * arm_x - sin * arm_y
        ry = sin * arm_x + cos * arm_y
        fx, fy = (front_x, front_y) if index < 2 else (rear_x, rear_y)
        vx = car.vx - car.yaw_rate * (sin_before * arm_x + cos_before * arm_y)
        vy = car.vy + car.yaw_rate * (cos_before * arm_x - sin_before * arm_y)
        forward = fx * vx + fy * vy
        sideways = fy * vx - fx * vy
        limit = FRICTION_LIMIT * (road_grip if wheel.on_road else grass_grip)

        omega = wheel.omega
        if index >= 2:
            omega += DT * ENGINE_POWER * car.gas / WHEEL_INERTIA / (abs(omega) + 5.0)
        if brake >= 0.9:
            omega = 0.0
        elif brake > 0:
            slow = min(BRAKE_STEP * brake, abs(omega))
            omega -= slow if omega > 0 else -slow
        wheel.phase += omega * DT
        f_force = (omega * WHEEL_RADIUS - forward) * SLIP_STIFFNESS
        p_force = -sideways * SLIP_STIFFNESS
        force = math.sqrt(f_force * f_force + p_force * p_force)
        if force > limit:
            f_force *= limit / force
            p_force *= limit / force
        wheel.omega = omega - DT * f_force * WHEEL_RADIUS / WHEEL_INERTIA

        push_x = p_force * fy + f_force * fx
        push_y = -p_force * fx + f_force * fy
        force_x += push_x
        force_y += push_y
        torque += rx * push_y - ry * push_x
    car.vx += DT * force_x / MASS
    car.vy += DT * force_y / MASS
    car.yaw_rate += DT * torque / INERTIA


@kernel(counted=False)
def move(car, steer):
    """Turn the front wheels towards the command and integrate the pose.

    The wheels' motors act within the car, so what they give to the wheels they take from the body.
    """
    error = -steer - car.steer
    rate = min(STEER_GAIN * abs(error), STEER_SPEED)
    rate = rate if error > 0 else -rate
    # The joint's limit holds only once it is passed; the wheel then rests where it stands.
    if (car.steer >= STEER_LIMIT and rate > 0) or (car.steer <= -STEER_LIMIT and rate < 0):
        rate = 0.0
    car.yaw_rate -= 2 * WHEEL_YAW_INERTIA * (rate - car.steer_rate) / INERTIA
    car.steer_rate = rate
    car.steer += DT * rate
    car.rear_twist = 0.0

    speed = math.sqrt(car.vx * car.vx + car.vy * car.vy)
    if speed > MAX_SPEED:
        car.vx *= MAX_SPEED / speed
        car.vy *= MAX_SPEED / speed
        speed = MAX_SPEED
    car.speed = speed
    car.com_x += DT * car.vx
    car.com_y += DT * car.vy
    car.angle += DT * car.yaw_rate
