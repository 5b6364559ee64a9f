"""Policies for tests, behind the contract of `common.rl.policy`."""

import numpy as np

from common.rl.policy import ObservationSpec, TelemetrySpec


class Constant:
    """The same action always; counts how many cars it decided for."""

    def __init__(self, steer=0.0, gas=0.3, brake=0.0, spec=None, **options):
        self.spec = spec or ObservationSpec(**options)
        self.action = np.float32([steer, gas, brake])
        self.decisions = 0

    def initial(self, n, seeds=None):
        return None

    def act(self, carry, observation, is_first, deterministic=True):
        kind = np.uint8 if isinstance(self.spec, ObservationSpec) else np.float32
        assert observation.shape == (len(is_first), *self.spec.shape) and observation.dtype == kind
        self.decisions += len(observation)
        return np.tile(self.action, (len(observation), 1)), carry


class Counting:
    """Remembers its decisions: the gas says how many there were in this episode, in percent."""

    def __init__(self, **options):
        self.spec = ObservationSpec(**options) if options else TelemetrySpec(("speed",))
        self.seeds = None

    def initial(self, n, seeds=None):
        self.seeds = None if seeds is None else list(seeds)
        return {"count": np.zeros(n, np.int64)}

    def act(self, carry, observation, is_first, deterministic=True):
        count = np.where(is_first, 0, carry["count"]) + 1
        action = np.zeros((len(count), 3), np.float32)
        action[:, 1] = np.minimum(count / 100, 1.0)
        return action, {"count": count}
