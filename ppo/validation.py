"""Validation beside training: snapshots of the policy, judged in a process of its own.

The trainer hands over a copy of the weights and continues. The verdict comes back some updates
later and belongs to the snapshot, so which checkpoint is the best does not depend on timing.
Snapshots that still wait are saved in last.pt and judged again after a resume.
"""

import multiprocessing
import os
import signal
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import torch
from torch import Tensor

from common.errors import UserError
from common.rl.policy import ObservationSpec
from ppo.config import PolicyConfig
from ppo.evaluate import Driver
from ppo.policy import ActorCritic

Validate = Callable[[Driver], Mapping[str, Any]]
"""Drives the validation tracks; returns the evaluation's summary. Runs in the other process, so
it must be picklable: a function of a module, or a `functools.partial` of one."""

MAX_WAITING = 3
NICENESS = 19


@dataclass(frozen=True)
class Snapshot:
    """A policy at one moment of its training.

    `row` has the moment's counters and training metrics, `weights` the policy's state on the CPU.
    """

    row: dict[str, Any]
    weights: dict[str, Tensor]


class Validation:
    """Judges snapshots in the order in which they were submitted.

    With `background` it runs in another process, at the lowest priority and on one thread, so that
    training loses little. Without, `submit` judges at once.
    """

    def __init__(
        self, validate: Validate, spec: ObservationSpec, network: PolicyConfig, background: bool
    ) -> None:
        self.validate, self.spec, self.network = validate, spec, network
        self.background = background
        self.waiting: deque[Snapshot] = deque()
        self._verdicts: deque[Mapping[str, Any]] = deque()
        self._process: multiprocessing.process.BaseProcess | None = None
        self._connection: Connection | None = None

    def submit(self, snapshot: Snapshot) -> None:
        """Queue `snapshot`; blocks while MAX_WAITING others are not judged yet."""
        while len(self.waiting) - len(self._verdicts) >= MAX_WAITING:
            self._receive()
        self.waiting.append(snapshot)
        if not self.background:
            driver = Driver(build(self.spec, self.network, snapshot.weights), self.spec)
            self._verdicts.append(self.validate(driver))
            return
        if self._process is None:
            self._start()
        weights = {name: tensor.numpy() for name, tensor in snapshot.weights.items()}
        try:
            self._connection.send(weights)
        except OSError:
            raise self._died() from None

    def judged(self, wait: bool = False) -> list[tuple[Snapshot, Mapping[str, Any]]]:
        """Snapshots judged since the last call, each with its summary.

        With `wait`, all that were submitted. Raises `UserError` if the process has died.
        """
        while self._connection is not None and len(self._verdicts) < len(self.waiting):
            if not wait and not self._connection.poll():
                break
            self._receive()
        return [(self.waiting.popleft(), self._verdicts.popleft()) for _ in list(self._verdicts)]

    def state_dict(self) -> list[dict[str, Any]]:
        """The snapshots that wait for their verdict."""
        return [vars(snapshot) for snapshot in self.waiting]

    def load_state_dict(self, state: Iterable[Mapping[str, Any]]) -> None:
        """Submit the snapshots again that were waiting."""
        for snapshot in state:
            self.submit(Snapshot(**snapshot))

    def close(self) -> None:
        """End the process, whatever it has not judged yet."""
        if self._process is not None:
            self._connection.close()
            self._process.terminate()
            self._process.join()
            self._process = self._connection = None

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")  # torch's threads do not survive a fork
        self._connection, other = context.Pipe()
        self._process = context.Process(
            target=_serve,
            args=(other, self.validate, self.spec, self.network),
            name="validation",
            daemon=True,
        )
        self._process.start()
        other.close()

    def _receive(self) -> None:
        try:
            verdict = self._connection.recv()
        except (EOFError, OSError):
            raise self._died() from None
        if isinstance(verdict, UserError):
            raise verdict
        self._verdicts.append(verdict)

    def _died(self) -> UserError:
        self._process.join(timeout=10)
        return UserError(
            f"the validation process died (exit code {self._process.exitcode}); its own message is "
            "above, or it was killed, perhaps for memory. Resume the run; "
            "evaluation.background=false validates in the training process"
        )


def build(
    spec: ObservationSpec, network: PolicyConfig, weights: Mapping[str, Tensor]
) -> ActorCritic:
    """The policy with these weights, on the CPU."""
    with torch.device("meta"):
        policy = ActorCritic(spec, network)
    policy.load_state_dict(weights, assign=True)
    return policy.eval()


def _serve(
    connection: Connection, validate: Validate, spec: ObservationSpec, network: PolicyConfig
) -> None:
    """The other process: weights in, summaries out, until the trainer is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the trainer's to handle
    os.nice(NICENESS)
    torch.set_num_threads(1)
    while True:
        try:
            weights = {name: torch.from_numpy(a) for name, a in connection.recv().items()}
            try:
                verdict = validate(Driver(build(spec, network, weights), spec))
            except UserError as error:
                verdict = error
            connection.send(verdict)
        except (EOFError, OSError):
            return
