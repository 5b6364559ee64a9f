"""Checkpoint files: tensors and plain data. A file is whole or absent; reading runs no code."""

import io
import os
import warnings
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from common.errors import UserError
from common.files import atomic_write_bytes

_MAKERS = {"ppo": "python train_ppo.py", "rssm": "python train_world_model.py"}
_KINDS = {"ppo": "driver", "rssm": "world model"}
"""Room of a checkpoint's format -> the command that makes such checkpoints."""


def write_checkpoint(path: Path, content: Mapping[str, Any]) -> None:
    """Write tensors and plain data, all or nothing; `content` names its `format`."""
    buffer = io.BytesIO()
    torch.save(to_tensors(content), buffer)
    atomic_write_bytes(path, buffer.getvalue())


def save_rejected(path: Path, rows: Mapping[str, Tensor]) -> str:
    """Save data that training could not use. Returns the path, or why it could not be written.

    It raises nothing for a full disk, because that would hide the reason for saving.
    """
    buffer = io.BytesIO()
    torch.save({name: tensor.detach().cpu() for name, tensor in rows.items()}, buffer)
    try:
        atomic_write_bytes(path, buffer.getvalue())
    except OSError as error:
        return f"{path} (which could not be written: {error.strerror})"
    return str(path)


def read_checkpoint(
    path: str | os.PathLike, formats: Mapping[str, Iterable[str]]
) -> dict[str, Any]:
    """The content of a checkpoint file, on the CPU. Reading it never runs code from it.

    Args:
        path: the file.
        formats: the formats that can be read, newest first, such as "dreamracer/ppo/1". Each has
            the keys that its files must have besides `about`, a mapping of plain data.

    Raises:
        UserError: the file cannot be read, is damaged, or is of another format.
    """
    path, room = Path(path), next(iter(formats)).split("/")[1]
    if path.is_dir():
        raise UserError(f"{path} is a directory; name a file such as {path}/checkpoints/best.pt")
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise UserError(f"{path}: no such checkpoint; {_MAKERS[room]} makes one") from None
    except OSError as error:
        raise UserError(f"cannot read the checkpoint {path}: {error.strerror}") from None
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            damaged = archive.testzip()  # torch itself does not compare the checksums
        if damaged is not None:
            raise zipfile.BadZipFile(damaged)
        with warnings.catch_warnings(action="ignore"):  # bad files are refused anyway
            content = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    except Exception as error:
        # torch raises half a dozen types, depending on which byte is wrong.
        raise UserError(
            f"{path} is not a readable checkpoint: damaged, cut short, or not a file of weights"
        ) from error
    if not isinstance(content, dict) or "format" not in content:
        raise UserError(f"{path} is not a checkpoint of {room}: it holds no 'format'")
    if content["format"] not in formats:
        known = " and ".join(map(repr, formats))
        other = str(content["format"]).split("/")[1:2]
        kind = f"a {_KINDS[other[0]]}, " if other and other[0] in _KINDS.keys() - {room} else ""
        raise UserError(
            f"{path} is {kind}of format {content['format']!r}; here a {_KINDS[room]} is needed, of "
            f"format {known}"
        )
    missing = {*formats[content["format"]], "about"} - content.keys()
    if missing:
        raise UserError(f"{path} is incomplete: no {', '.join(sorted(missing))}")
    if not (isinstance(content["about"], dict) and _is_plain(content["about"])):
        raise UserError(f"{path} is damaged: 'about' is no mapping of plain data")
    return content


def check_tensors(module: nn.Module, weights: Mapping[str, Any]) -> None:
    """Raise `TypeError` where a tensor that `module` would load has another type or layout."""
    for name, tensor in module.state_dict().items():
        loaded = weights.get(name, tensor)
        if (loaded.dtype, loaded.layout) != (tensor.dtype, tensor.layout):
            raise TypeError(f"{name} is {loaded.dtype}, {loaded.layout}, not {tensor.dtype}")


def _is_plain(tree: Any) -> bool:
    match tree:
        case None | bool() | int() | float() | str():
            return True
        case list() | tuple():
            return all(map(_is_plain, tree))
        case dict():
            return all(isinstance(key, str) and _is_plain(value) for key, value in tree.items())
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
    """`tree` with tensors as numpy arrays: the inverse of `to_tensors`, except for scalars."""
    match tree:
        case torch.Tensor():
            return tree.numpy()
        case Mapping():
            return {key: to_arrays(value) for key, value in tree.items()}
        case list() | tuple():
            return type(tree)(map(to_arrays, tree))
    return tree
