"""Where tensors live and how many threads work on them."""

import ctypes
import os

import torch
from lightning.fabric import Fabric

from common.errors import ConfigError

_MALLOC_OPTIONS = ((-4, 0), (-1, 2**31 - 1), (-2, 64 * 2**20))
"""Options of mallopt: M_MMAP_MAX 0 (map no block separately), M_TRIM_THRESHOLD, M_TOP_PAD."""
MAX_THREADS = 1024


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


def set_threads(threads: int, processes: int = 1) -> int:
    """Set torch's number of CPU threads, whatever OMP_NUM_THREADS says; returns the number.

    0 takes the cores that this process may use, divided by `processes`. Raises `ConfigError` for
    more than MAX_THREADS, because too many threads can end the process without a message.
    """
    if threads > MAX_THREADS:
        raise ConfigError(f"threads is at most {MAX_THREADS}, not {threads}")
    affinity = getattr(os, "sched_getaffinity", None)
    available = len(affinity(0)) if affinity else os.cpu_count() or 1
    threads = threads or max(1, available // processes)
    torch.set_num_threads(threads)
    return threads


def tune_allocator() -> bool:
    """Let glibc keep freed memory instead of returning it to the system; False on other systems.

    A training step frees and allocates hundreds of MB. By default each large block is mapped again,
    and the system zeroes its pages, which costs up to half of the step.
    """
    try:
        libc = ctypes.CDLL("libc.so.6")
        return all(libc.mallopt(*option) == 1 for option in _MALLOC_OPTIONS)
    except (OSError, AttributeError):  # another system, without glibc
        return False


def check_processes(processes: int, command: str) -> None:
    """Raise `ConfigError` unless torchrun started the configured number of processes."""
    started = int(os.environ.get("WORLD_SIZE", "1"))
    if processes != started:
        raise ConfigError(
            f"processes={processes}, but {started} were started; use "
            f"torchrun --nproc-per-node {processes} {command} processes={processes}"
        )


def make_fabric(device: str, precision: str, processes: int, command: str) -> Fabric:
    """A started Fabric with the configured device, precision and processes.

    Args:
        device: as `choose_device` takes it.
        precision: Lightning's name, such as 32-true or bf16-mixed.
        processes: number of processes that share every batch.
        command: name of the script, for messages.

    Raises:
        ConfigError: a missing device, or another number of processes than configured.
    """
    chosen = choose_device(device)
    check_processes(processes, command)
    several = processes > 1
    one = 1 if chosen.type != "cuda" else [chosen.index or 0]
    fabric = Fabric(
        accelerator=chosen.type,
        devices=processes if several else one,
        strategy="ddp" if several else "auto",
        precision=precision,
    )
    fabric.launch()
    return fabric
