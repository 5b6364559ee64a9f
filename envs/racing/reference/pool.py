"""Several real CarRacing-v3 side by side, in this process or spread over worker processes.

Gymnasium's simulator holds the interpreter's lock, so threads would gain nothing. A worker is a
fresh interpreter (never a fork: the parent has threads) that serves its worlds over a socket; what
passes are plain arrays. It ends when the socket does, so it cannot outlive its parent.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np

from common.errors import UserError
from envs.racing.config import ObservationSpec
from envs.racing.pixels.adapter import FrameAdapter
from envs.racing.reference.drive import REWARD_TERMS, ReferenceDrive, make_reference
from envs.racing.score.car import CAR

SEED_DIGITS = 128
COMMAND = np.dtype([("world", "i8"), ("seed", f"S{SEED_DIGITS}"), ("action", "f8", 3)])
"""Start an episode on the track of `seed`, in decimal digits because seeds have any size, or, where
there are none, hold `action` for one decision."""

OUTCOME = np.dtype(
    [
        ("car", CAR),
        ("length", "f8"),  # of the track, units
        ("reward", "f8"),  # of this decision, as are the next two
        ("terms", "f8", len(REWARD_TERMS)),
        ("ticks", "i8"),
    ]
)
"""Where a world is after a command."""

Results = tuple[np.ndarray, np.ndarray]
"""(n,) OUTCOME and (n, *spec.shape) uint8 observations, one row per command."""

PATIENCE = 5.0
"""Seconds until a worker that does not end by itself is killed."""


class _Worlds:
    """Worlds of this process."""

    def __init__(self, spec: ObservationSpec, max_ticks: int) -> None:
        self._spec, self._max_ticks = spec, max_ticks
        self._worlds: dict[int, tuple[ReferenceDrive, FrameAdapter]] = {}
        self._results: Results | None = None

    def send(self, commands: np.ndarray) -> None:
        self._results = self.run(commands)

    def receive(self) -> Results:
        return self._results

    def run(self, commands: np.ndarray) -> Results:
        outcomes = np.zeros(len(commands), OUTCOME)
        observations = np.zeros((len(commands), *self._spec.shape), np.uint8)
        for command, outcome, observation in zip(commands, outcomes, observations, strict=True):
            world, seed = int(command["world"]), command["seed"]
            if seed:
                self._start(world, int(seed), observation)
            else:
                self._hold(world, command["action"], outcome, observation)
            drive, _ = self._worlds[world]
            outcome["car"], outcome["length"] = drive.car[0], drive.track.length
        return outcomes, observations

    def _start(self, world: int, seed: int, observation: np.ndarray) -> None:
        if world in self._worlds:
            drive, adapter = self._worlds[world]
            drive.reset(seed)
        else:
            drive, adapter = ReferenceDrive(seed), FrameAdapter(self._spec, mask_score=True)
            self._worlds[world] = drive, adapter
        observation[:] = adapter.reset(drive.frame)

    def _hold(
        self, world: int, action: np.ndarray, outcome: np.void, observation: np.ndarray
    ) -> None:
        drive, adapter = self._worlds[world]
        car = drive.car[0]
        for _ in range(self._spec.action_repeat):
            drive.step(action)
            outcome["reward"] += drive.reward
            outcome["terms"] += drive.reward_terms
            outcome["ticks"] += 1
            car["truncated"] = not car["terminated"] and car["tick"] >= self._max_ticks
            if car["terminated"] or car["truncated"]:
                break
        observation[:] = adapter.push(drive.frame)

    def close(self) -> None:
        for drive, _ in self._worlds.values():
            drive.close()
        self._worlds.clear()


class _Worker:
    """Worlds of another process, behind the interface of `_Worlds`."""

    def __init__(self, spec: ObservationSpec, max_ticks: int) -> None:
        self._socket, worker_end = Pipe()
        settings = json.dumps({"spec": vars(spec), "max_ticks": max_ticks})
        with worker_end:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(worker_end.fileno()), settings],
                cwd=Path(__file__).parents[3],  # so that Python finds the package
                pass_fds=[worker_end.fileno()],
                process_group=0,  # Ctrl-C reaches the parent alone
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,  # the command's last line is for its user
            )
        self._shape = spec.shape

    def send(self, commands: np.ndarray) -> None:
        try:
            self._socket.send_bytes(commands.tobytes())
        except OSError as error:
            raise self._death() from error

    def receive(self) -> Results:
        try:
            outcomes, observations = (self._socket.recv_bytes() for _ in range(2))
        except (EOFError, OSError) as error:
            raise self._death() from error
        return (
            np.frombuffer(outcomes, OUTCOME),
            np.frombuffer(observations, np.uint8).reshape(-1, *self._shape),
        )

    def _death(self) -> UserError:
        self.close()
        code = self._process.returncode
        how = (
            f"was killed by signal {-code} (out of memory?)" if code < 0 else f"exited with {code}"
        )
        return UserError(f"a worker process of the real CarRacing-v3 {how}; its worlds are lost")

    def close(self) -> None:
        self._socket.close()
        try:
            self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class ReferencePool:
    """`worlds` copies of the real CarRacing-v3, with the observations that a policy needs.

    An episode ends, by its car's `terminated` or `truncated`, as CarRacing-v3 ends it or after
    `max_ticks`; an ended world waits for its next `reset`. Results depend on the seeds and actions
    alone, not on `workers` or on what the other worlds do.

    Args:
        worlds: how many.
        spec: what the policy sees, and for how many ticks it holds an action.
        max_ticks: ticks until truncation.
        workers: processes that step the worlds; 1 steps them in this one.

    Raises:
        UserError: the extra `parity` is not installed; later, a worker process has died. The pool
            is closed then.
    """

    def __init__(
        self, worlds: int, spec: ObservationSpec, max_ticks: int, workers: int = 1
    ) -> None:
        make_reference().close()  # reports a missing extra here, not from a worker
        workers = min(workers, worlds)
        make = _Worlds if workers == 1 else _Worker
        self._parts = [make(spec, max_ticks) for _ in range(workers)]
        self._shape = spec.shape

    def reset(self, worlds: Sequence[int], seeds: Sequence[int]) -> Results:
        """Start new episodes on the tracks of `seeds` in `worlds`.

        Raises:
            UserError: a seed of more than SEED_DIGITS digits.
        """
        longest = max(int(seed) for seed in seeds)
        if longest >= 10**SEED_DIGITS:
            raise UserError(f"a seed has at most {SEED_DIGITS} digits here, not {longest}")
        commands = np.zeros(len(worlds), COMMAND)
        commands["world"] = worlds
        commands["seed"] = [str(seed) for seed in seeds]
        return self._run(commands)

    def step(self, worlds: Sequence[int], actions: np.ndarray) -> Results:
        """One decision in each of `worlds`; actions (n, 3)."""
        commands = np.zeros(len(worlds), COMMAND)
        commands["world"], commands["action"] = worlds, actions
        return self._run(commands)

    def _run(self, commands: np.ndarray) -> Results:
        if not self._parts:
            raise UserError("the worlds of the real CarRacing-v3 are closed")
        outcomes = np.zeros(len(commands), OUTCOME)
        observations = np.zeros((len(commands), *self._shape), np.uint8)
        owner = commands["world"] % len(self._parts)
        shares = [
            (part, np.flatnonzero(owner == number)) for number, part in enumerate(self._parts)
        ]
        try:
            for part, rows in shares:
                part.send(commands[rows])
            for part, rows in shares:
                outcomes[rows], observations[rows] = part.receive()
        except BaseException:
            self.close()  # else the next call would read the answers to this one
            raise
        return outcomes, observations

    def close(self) -> None:
        """End the worker processes; may be called twice."""
        for part in self._parts:
            part.close()
        self._parts = []


def main() -> None:
    """Serve worlds to the process that started this one: `_Worker` gives the arguments."""
    settings = json.loads(sys.argv[2])
    worlds = _Worlds(ObservationSpec(**settings["spec"]), settings["max_ticks"])
    with Connection(int(sys.argv[1])) as socket:
        try:
            while True:
                results = worlds.run(np.frombuffer(socket.recv_bytes(), COMMAND))
                for array in results:
                    socket.send_bytes(array.tobytes())
        except (EOFError, ConnectionError):
            pass  # the parent has closed its end, or is no more


if __name__ == "__main__":
    main()
