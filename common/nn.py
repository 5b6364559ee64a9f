"""The torch code that more than one trainer uses: devices, Gaussians, returns, checkpoints.

The only module in `common` that imports torch. Everything here is a pure function or a small
object over tensors; nothing knows about a world, a policy or a run.
"""

import ctypes
import io
import math
import os
import warnings
import zipfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from common.errors import ConfigError, UserError
from common.files import atomic_write_bytes

EPSILON = 1e-8
_MALLOC_OPTIONS = ((-4, 0), (-1, 2**31 - 1), (-2, 64 * 2**20))
"""mallopt's M_MMAP_MAX 0 (no block of its own mapping), M_TRIM_THRESHOLD, M_TOP_PAD."""
_HALF_LOG_TWO_PI = 0.5 * math.log(2 * math.pi)


def choose_device(name: str = "auto") -> torch.device:
    """The device called `name`; `auto` takes CUDA, then Apple's MPS, then the CPU.

    Raises `ConfigError` for an unknown name and for a device that this machine lacks.
    """
    cuda, mps = torch.cuda.is_available(), torch.backends.mps.is_available()
    if name == "auto":
        name = "cuda" if cuda else "mps" if mps else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ConfigError(f"device: {name!r} is not auto, cpu, cuda, cuda:<index> or mps") from None
    if device.type == "cuda" and not cuda:
        raise ConfigError(f"device: {name} was asked for, but torch finds no CUDA GPU here")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ConfigError(f"device: {name} does not exist; GPUs: {torch.cuda.device_count()}")
    if device.type == "mps" and not mps:
        raise ConfigError("device: mps was asked for, but torch finds no Apple GPU here")
    if device.type not in ("cpu", "cuda", "mps"):
        raise ConfigError(f"device: {name!r} is not auto, cpu, cuda, cuda:<index> or mps")
    return device


MAX_THREADS = 1024


def set_threads(threads: int, processes: int = 1) -> int:
    """Fix torch's number of CPU threads, which must not depend on the environment's guess.

    0 takes what this process may use, divided among `processes`. Returns the number. Raises
    `ConfigError` for more than MAX_THREADS, which may end the process without a word.
    """
    if threads > MAX_THREADS:
        raise ConfigError(f"threads is at most {MAX_THREADS}, not {threads}")
    affinity = getattr(os, "sched_getaffinity", None)
    available = len(affinity(0)) if affinity else os.cpu_count() or 1
    threads = threads or max(1, available // processes)
    torch.set_num_threads(threads)
    return threads


def tune_allocator() -> bool:
    """Have glibc keep freed memory instead of giving it back to the system; True where it can.

    A training step frees and takes again hundreds of MB. By default each large block is mapped
    anew, and the system's zeroing of its pages costs up to half of the step.
    """
    try:
        libc = ctypes.CDLL("libc.so.6")
        return all(libc.mallopt(*option) == 1 for option in _MALLOC_OPTIONS)
    except (OSError, AttributeError):  # another system's allocator: it has other habits
        return False


def check_processes(processes: int, command: str) -> None:
    """Raise `ConfigError` unless torchrun started as many processes as are configured."""
    started = int(os.environ.get("WORLD_SIZE", "1"))
    if processes != started:
        raise ConfigError(
            f"processes={processes}, but {started} were started; use "
            f"torchrun --nproc-per-node {processes} {command} processes={processes}"
        )


def orthogonal(layer: nn.Module, gain: float = math.sqrt(2), bias: float = 0.0) -> nn.Module:
    """Initialise a linear or convolutional `layer` orthogonally (Saxe et al. 2013); returns it."""
    nn.init.orthogonal_(layer.weight, gain)
    nn.init.constant_(layer.bias, bias)
    return layer


@dataclass(frozen=True)
class SquashedGaussian:
    """A diagonal Gaussian over u whose sample becomes the action low + (high - low)(tanh(u) + 1)/2.

    `mean` is (..., actions); `log_std`, `low` and `high` broadcast against it. Keep u, not the
    action: tanh cannot be inverted in float32 beyond |u| of about 8. `log_prob` is the density of
    the *action*, in nats, and integrates to 1 over the box.
    """

    mean: Tensor
    log_std: Tensor
    low: Tensor
    high: Tensor

    def sample(self, noise: Tensor) -> Tensor:
        """u for standard normal `noise` shaped like `mean`; differentiable (reparametrised)."""
        return self.mean + self.log_std.exp() * noise

    def squash(self, u: Tensor) -> Tensor:
        """The action that u stands for; always inside [low, high], whatever the rounding."""
        action = self.low + (self.high - self.low) * 0.5 * (torch.tanh(u) + 1)
        return torch.clamp(action, self.low, self.high)

    def mode(self) -> Tensor:
        """The deterministic action: the squashed mean."""
        return self.squash(self.mean)

    def log_prob(self, u: Tensor) -> Tensor:
        """Log density of the action that u stands for, (...).

        log N(u) - sum log(1 - tanh(u)^2) - sum log((high - low)/2), with log(1 - tanh(u)^2) =
        2 (log 2 - u - softplus(-2u)), exact at any u (Haarnoja et al. 2018, appendix C, in the
        form that does not cancel).
        """
        squashing = 2 * (math.log(2) - u - functional.softplus(-2 * u))
        return (self._gaussian(u) - squashing).sum(-1)

    def entropy(self, noise: Tensor) -> Tensor:
        """One-sample Monte-Carlo estimate of the action's differential entropy, (...).

        Reparametrised, so its gradient is an unbiased estimate of the entropy's gradient. (The
        Gaussian's entropy is not the squashed one's: it grows without bound, this cannot exceed
        the log volume of the box.)
        """
        return -self.log_prob(self.sample(noise))

    def unsquash(self, action: Tensor) -> Tensor:
        """The u that stands for `action`, strictly inside (low, high)."""
        return torch.atanh(self._centred(action))

    def _gaussian(self, u: Tensor) -> Tensor:
        """Log density of u in each dimension, in units of the action."""
        z = (u - self.mean) * torch.exp(-self.log_std)
        scale = torch.log((self.high - self.low) * 0.5)
        return -0.5 * z.square() - self.log_std - _HALF_LOG_TWO_PI - scale

    def _centred(self, action: Tensor) -> Tensor:
        return 2 * (action - self.low) / (self.high - self.low) - 1


class ClippedGaussian(SquashedGaussian):
    """A Gaussian whose sample is cut off at the bounds, as most PPO code has it.

    The action is low + (high - low)(clip(u, -1, 1) + 1)/2 and the density that of u before the cut:
    samples beyond a bound count as different actions although the world sees the same one.
    """

    def squash(self, u: Tensor) -> Tensor:
        return self.low + (self.high - self.low) * 0.5 * (u.clamp(-1, 1) + 1)

    def log_prob(self, u: Tensor) -> Tensor:
        return self._gaussian(u).sum(-1)

    def unsquash(self, action: Tensor) -> Tensor:
        return self._centred(action)


def gae(
    reward: Tensor,
    value: Tensor,
    next_value: Tensor,
    terminated: Tensor,
    done: Tensor,
    gamma: float,
    lam: float,
) -> Tensor:
    """Generalised advantage estimates (Schulman et al. 2016), all arguments and result (T, ...).

    `next_value[t]` is the value of the state that step t really led to: of the episode's own last
    observation where `done[t]`, not of the next episode's first. Two masks: a terminated state is
    worth nothing, `delta = r + gamma (1 - terminated) V' - V`; no sum crosses any ending,
    `A[t] = delta[t] + gamma lam (1 - done[t]) A[t+1]`.
    """
    delta = reward + gamma * next_value * ~terminated - value
    decay = gamma * lam * (~done).to(delta.dtype)
    advantage = torch.empty_like(delta)
    following = torch.zeros_like(delta[0])
    for t in reversed(range(len(delta))):
        following = delta[t] + decay[t] * following
        advantage[t] = following
    return advantage


def standardise(x: Tensor) -> Tensor:
    """(x - mean) / std over all elements; the std is the population's, so one element gives 0."""
    return (x - x.mean()) / (x.std(correction=0) + EPSILON)


@dataclass
class RunningMoments:
    """Mean and variance of everything seen, in float64, merged batch by batch (Chan et al. 1979).

    `squares` is the sum of squared deviations from the mean.
    """

    count: float = 0.0
    mean: float = 0.0
    squares: float = 0.0

    def update(self, x: Tensor) -> None:
        """Take in every element of `x`; an empty one changes nothing."""
        if x.numel():
            x = x.double()
            mean = x.mean()
            squares = (x - mean).square().sum()
            self.merge(RunningMoments(float(x.numel()), mean.item(), squares.item()))

    def merge(self, other: "RunningMoments") -> None:
        """Take in everything that `other` has seen."""
        if not other.count:
            return
        total = self.count + other.count
        shift = other.mean - self.mean
        self.squares += other.squares + shift * shift * self.count * other.count / total
        self.mean += shift * other.count / total
        self.count = total

    @property
    def std(self) -> float:
        """Population standard deviation; 1 while fewer than two elements were seen."""
        return math.sqrt(self.squares / self.count) if self.count > 1 else 1.0

    def state_dict(self) -> dict[str, float]:
        return asdict(self)

    def load_state_dict(self, state: Mapping[str, float]) -> None:
        self.count, self.mean, self.squares = (
            float(state[name]) for name in ("count", "mean", "squares")
        )


class ReturnScaler:
    """Divides rewards by the running standard deviation of discounted returns.

    Per stream R = gamma R + r, started afresh after an ending; the std is over every R of every
    active row so far (the quantity of Gymnasium's NormalizeReward, which mishandles SAME_STEP
    autoreset). One rollout is taken in first and then scaled by a single number, so advantages
    inside it are comparable. No mean is subtracted: that would change the task.

    `gather` turns one process's moments of a rollout into those of all processes, in rank order,
    so that every process scales alike; by default there is only one.
    """

    def __init__(
        self,
        n_streams: int,
        gamma: float,
        gather: Callable[[RunningMoments], Iterable[RunningMoments]] = lambda own: [own],
    ) -> None:
        self.gamma, self.gather = gamma, gather
        self.moments = RunningMoments()
        self.running = torch.zeros(n_streams, dtype=torch.float64)

    def update(self, reward: Tensor, done: Tensor, active: Tensor) -> None:
        """Take in a rollout: `reward`, `done` and `active` are (T, n_streams)."""
        returns = torch.empty_like(reward, dtype=torch.float64, device="cpu")
        reward, alive, active = reward.double().cpu(), ~done.cpu(), active.cpu()
        for t in range(len(reward)):
            # An inactive row earns nothing and discounts nothing.
            self.running = torch.where(active[t], self.gamma * self.running + reward[t], 0.0)
            returns[t] = self.running
            self.running = self.running * alive[t]
        rollout = RunningMoments()
        rollout.update(returns[active])
        for part in self.gather(rollout):
            self.moments.merge(part)

    @property
    def scale(self) -> float:
        """What to multiply rewards by."""
        return 1.0 / (self.moments.std + EPSILON)

    def state_dict(self) -> dict[str, Any]:
        return {"moments": self.moments.state_dict(), "running": self.running.clone()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.moments.load_state_dict(state["moments"])
        self.running = state["running"].clone()


def write_checkpoint(path: Path, content: Mapping[str, Any]) -> None:
    """Write tensors and plain data, all or nothing; `content` names its `format`."""
    buffer = io.BytesIO()
    torch.save(to_tensors(content), buffer)
    atomic_write_bytes(path, buffer.getvalue())


def save_rejected(path: Path, rows: Mapping[str, Tensor]) -> str:
    """Keep data that training could not use; returns where, or why not: a full disk must not hide
    the reason for saving."""
    buffer = io.BytesIO()
    torch.save({name: tensor.detach().cpu() for name, tensor in rows.items()}, buffer)
    try:
        atomic_write_bytes(path, buffer.getvalue())
    except OSError as error:
        return f"{path} (which could not be written: {error.strerror})"
    return str(path)


def read_checkpoint(
    path: str | os.PathLike, expected: str, required: Iterable[str]
) -> dict[str, Any]:
    """The content of a checkpoint file, on the CPU. Reading it never runs code from it.

    Args:
        path: the file.
        expected: its `format`, such as "dreamracer/ppo/1".
        required: keys that it must have besides `about`, a mapping of plain data.

    Raises:
        UserError: the file cannot be read, is damaged, or is not one of that format.
    """
    path, room = Path(path), expected.split("/")[1]
    if path.is_dir():
        raise UserError(f"{path} is a directory; name a file such as {path}/checkpoints/best.pt")
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UserError(f"cannot read the checkpoint {path}: {error.strerror}") from None
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            damaged = archive.testzip()  # torch itself does not compare the checksums
        if damaged is not None:
            raise zipfile.BadZipFile(damaged)
        with warnings.catch_warnings(action="ignore"):  # about files that are refused anyway
            content = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    except Exception as error:
        # torch raises half a dozen types, depending on which byte is wrong.
        raise UserError(
            f"{path} is not a readable checkpoint: damaged, cut short, or not a file of weights"
        ) from error
    if not isinstance(content, dict) or "format" not in content:
        raise UserError(f"{path} is not a checkpoint of {room}: it holds no 'format'")
    if content["format"] != expected:
        raise UserError(f"{path} has format {content['format']!r}; this version reads {expected!r}")
    missing = {*required, "about"} - content.keys()
    if missing:
        raise UserError(f"{path} is incomplete: no {', '.join(sorted(missing))}")
    if not (isinstance(content["about"], dict) and _is_plain(content["about"])):
        raise UserError(f"{path} is damaged: 'about' is no mapping of plain data")
    return content


def check_tensors(module: nn.Module, given: Mapping[str, Any]) -> None:
    """Raise `TypeError` where a tensor that `module` would load has another type or layout."""
    for name, tensor in module.state_dict().items():
        found = given.get(name, tensor)
        if (found.dtype, found.layout) != (tensor.dtype, tensor.layout):
            raise TypeError(f"{name} is {found.dtype}, {found.layout}, not {tensor.dtype}")


def _is_plain(tree: Any) -> bool:
    match tree:
        case None | bool() | int() | float() | str():
            return True
        case list() | tuple():
            return all(map(_is_plain, tree))
        case dict():
            return all(isinstance(k, str) and _is_plain(v) for k, v in tree.items())
    return False


def to_tensors(tree: Any) -> Any:
    """`tree` with numpy arrays as tensors and numpy scalars as plain numbers."""
    match tree:
        case np.ndarray():
            return torch.from_numpy(np.array(tree))
        case np.generic():
            return tree.item()
        case Mapping():
            return {key: to_tensors(value) for key, value in tree.items()}
        case list() | tuple():
            return type(tree)(map(to_tensors, tree))
    return tree


def to_arrays(tree: Any) -> Any:
    """`tree` with tensors as numpy arrays: the inverse of `to_tensors`, but for scalars."""
    match tree:
        case torch.Tensor():
            return tree.numpy()
        case Mapping():
            return {key: to_arrays(value) for key, value in tree.items()}
        case list() | tuple():
            return type(tree)(map(to_arrays, tree))
    return tree
