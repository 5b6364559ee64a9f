"""Runs tasks on a Ray cluster (extra `cluster`): the same processes, on any node that has room.

Every node has this project installed at the campaign's commit and shares no files with the
campaign's machine. The run directories that a task reads are sent to the node; the run directory
that it writes is sent back. One Ray task is one attempt, and Ray never repeats it: the campaign
decides whether a lost attempt is repeated, and writes that down.
"""

from __future__ import annotations

import dataclasses
import io
import os
import shutil
import socket
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autoresearch.config import ExecutorConfig
from autoresearch.execute.processes import Ended, Job, LocalExecutor
from common.errors import UserError
from common.runs import code_state

WAIT_SECONDS, CONNECT_SECONDS = 0.5, 10.0
LOG_BYTES = 1 << 20
"""How much of a task's output is sent back, from its end."""


@dataclass(frozen=True)
class Returned:
    """What a node sends back.

    Attributes:
        node: its host name.
        code: hash of its source files.
        ended: how the task ended; None if it was not started because the code differs.
        log: what its processes printed.
        bundle: the run directory that it wrote, as a tar file.
    """

    node: str
    code: str
    ended: Ended | None = None
    log: bytes = b""
    bundle: bytes = b""


class RayExecutor:
    """Tasks of a Ray cluster.

    Raises:
        UserError: Ray is not installed, the cluster cannot be reached, or no node has room.
    """

    forgets = True

    def __init__(self, config: ExecutorConfig, grace: float) -> None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # send no usage data to Ray's makers
        try:
            import ray
        except ModuleNotFoundError:
            raise UserError(
                "executor=ray needs Ray, which is not installed: pip install -e '.[cluster]'"
            ) from None
        self.ray, self.grace, self.code = ray, grace, code_state()["sha256"]
        self._running: dict[Any, tuple[Job, float]] = {}
        where: dict[str, Any] = {"address": config.address}
        if config.address:
            _reach(config.address)
        else:
            # A cluster for this campaign only, on the loopback interface.
            where = {"address": "local", "num_cpus": max(1, round(config.jobs * config.cpus)),
                     "_node_ip_address": "127.0.0.1", "include_dashboard": False}  # fmt: skip
        try:
            ray.init(**where, log_to_driver=False, logging_level="ERROR")
        except (ConnectionError, ValueError, RuntimeError) as error:
            raise UserError(f"executor.address={config.address}: {error}") from None
        roomy = [node for node in ray.nodes() if node["Alive"] and _fits(node, config)]
        if not roomy:
            ray.shutdown()
            raise UserError(
                f"executor: no node of the cluster has {config.cpus:g} CPUs and "
                f"{config.gpus:g} GPUs for a task"
            )
        options = {"num_cpus": config.cpus, "num_gpus": config.gpus, "max_retries": 0}
        self._remote = ray.remote(**options)(perform)

    def start(self, job: Job) -> int:
        inputs = packed(job.runs, job.needs)
        reference = self._remote.remote(job, inputs, self.code, self.grace)
        self._running[reference] = job, time.monotonic()
        return 0

    def wait(self, poll: Callable[[], None] = lambda: None) -> list[Ended]:
        ready: list[Any] = []
        while self._running and not ready:
            poll()
            # With a timeout, so that signals are handled in between.
            ready, _ = self.ray.wait(list(self._running), timeout=WAIT_SECONDS)
        return [self._collect(reference) for reference in ready]

    def stop(self) -> None:
        for reference in self._running:
            self.ray.cancel(reference, force=True)
        self._running.clear()
        self.ray.shutdown()

    def _collect(self, reference: Any) -> Ended:
        job, began = self._running.pop(reference)
        try:
            returned: Returned = self.ray.get(reference)
        except self.ray.exceptions.RayError as error:
            message = str(error).strip().splitlines()[-1][:300]
            seconds = time.monotonic() - began
            return Ended(job.token, 1, False, seconds, f"{type(error).__name__}: {message}")
        if returned.ended is None:
            raise UserError(
                f"node {returned.node} has other code ({returned.code[:12]}) than this campaign "
                f"({self.code[:12]}): install the same commit there, then resume"
            )
        job.log.parent.mkdir(parents=True, exist_ok=True)
        with open(job.log, "ab") as log:
            log.write(returned.log)
        shutil.rmtree(job.runs / job.makes, ignore_errors=True)
        unpack(returned.bundle, job.runs)
        return returned.ended


def perform(job: Job, inputs: bytes, code: str, grace: float) -> Returned:
    """Run a job on this node, in a temporary directory."""
    node, installed = socket.gethostname(), code_state()["sha256"]
    if installed != code:
        return Returned(node, installed)
    with tempfile.TemporaryDirectory(prefix="autoresearch-") as scratch:
        runs, log = Path(scratch) / "runs", Path(scratch) / "log"
        unpack(inputs, runs)
        executor = LocalExecutor(grace, leashed=True)
        try:
            executor.start(dataclasses.replace(job, runs=runs, log=log))
            (ended,) = executor.wait()
        finally:
            executor.stop()
        printed, bundle = log.read_bytes()[-LOG_BYTES:], packed(runs, [job.makes])
        return Returned(node, installed, ended, printed, bundle)


def packed(root: Path, names: Iterable[str]) -> bytes:
    """A tar file of those of the directories `names` below `root` that exist."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        for name in names:
            if (root / name).is_dir():
                archive.add(root / name, name)
    return content.getvalue()


def unpack(content: bytes, root: Path) -> None:
    """Extract what `packed` made below `root`; nothing outside of it is touched."""
    root.mkdir(parents=True, exist_ok=True)
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        archive.extractall(root, filter="data")


def _reach(address: str) -> None:
    """Check that something listens at `address`; Ray itself would try for minutes."""
    host, colon, port = address.rpartition(":")
    if not colon:
        return  # auto
    try:
        socket.create_connection((host, int(port)), CONNECT_SECONDS).close()
    except (OSError, ValueError, OverflowError) as error:
        raise UserError(
            f"executor.address={address} is not a cluster's head ({error}); start one there with "
            "`ray start --head --port=6379`, or leave address out for a cluster of this machine"
        ) from None


def _fits(node: dict[str, Any], config: ExecutorConfig) -> bool:
    has = node["Resources"]
    return has.get("CPU", 0) >= config.cpus and has.get("GPU", 0) >= config.gpus
