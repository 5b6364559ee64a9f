"""The disk cache of compiled kernels: its directory, and how damaged files are handled."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numba
from numba.core.caching import FunctionCache, IndexDataCacheFile


def candidates() -> list[Path]:
    """Possible directories for the cache, best first.

    NUMBA_CACHE_DIR, else XDG_CACHE_HOME, else ~/.cache; then the directory for temporary files,
    where other processes of the same user find it again.
    """
    base = os.environ.get("NUMBA_CACHE_DIR") or os.environ.get("XDG_CACHE_HOME")
    home = Path(base) if base else Path.home() / ".cache"
    return [home / "dreamracer", Path(tempfile.gettempdir()) / f"dreamracer-{os.getuid()}"]


def find_directory() -> Path | None:
    """The first candidate that can be written, for the present code; None if there is none."""
    digest = hashlib.sha256(numba.__version__.encode())
    package = Path(__file__).parents[1]
    for source in sorted(package.rglob("*.py")):
        digest.update(source.relative_to(package).as_posix().encode() + source.read_bytes())
    for candidate in candidates():
        directory = candidate / f"kernels-{digest.hexdigest()[:16]}"
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            # Cached kernels are executed, so nobody else may write them.
            if directory.stat().st_uid == os.getuid():
                tempfile.TemporaryFile(dir=directory).close()  # root passes os.access everywhere
                return directory
        except OSError:
            continue
    return None


class DamagedError(Exception):
    """A file of the cache has changed since it was written."""


class KernelCache(FunctionCache):
    """Numba's cache of one function. A damaged file is removed and its kernel compiled again.

    Args:
        function: the function to compile.
        directory: the cache of the whole engine; numba makes a folder in it for each source file.
    """

    def __init__(self, function, directory: Path) -> None:
        before = numba.config.CACHE_DIR
        # Numba reads the directory here; other packages keep their own.
        numba.config.CACHE_DIR = str(directory)
        try:
            super().__init__(function)
        finally:
            numba.config.CACHE_DIR = before
        self._directory = directory
        locator = self._impl.locator
        self._cache_file = _CheckedFile(
            self.cache_path, self._impl.filename_base, locator.get_source_stamp()
        )

    def load_overload(self, sig, target_context) -> Any:
        """The compiled function, or None if it is not in the cache."""
        try:
            return super().load_overload(sig, target_context)
        except Exception as error:  # a file that is not ours can raise anything
            # The other files are probably damaged too.
            for path in self._directory.rglob("*.nb[ic]"):
                with contextlib.suppress(OSError):
                    path.unlink()
            _say(
                f"the compiled kernels in {self._directory} were damaged ({error}) and have been "
                "removed; they are compiled again"
            )
            return None

    def save_overload(self, sig, data) -> None:
        """Save a compiled function if the disk has room."""
        try:
            super().save_overload(sig, data)
        except OSError as error:
            self.disable()
            _say(f"compiled kernels cannot be kept in {self._directory}: {error.strerror}")


class _CheckedFile(IndexDataCacheFile):
    """Numba's index and data files, each followed by the SHA-256 of its content.

    Unpickling ignores the bytes after the content. Without the hash, it would not notice most
    damage.
    """

    @contextlib.contextmanager
    def _open_for_write(self, path: str) -> Iterator[BinaryIO]:
        buffer = io.BytesIO()
        yield buffer
        content = buffer.getvalue()
        with super()._open_for_write(path) as file:
            file.write(content + hashlib.sha256(content).digest())

    def _load_index(self) -> dict:
        with contextlib.suppress(FileNotFoundError):
            _check(Path(self._index_path))
        return super()._load_index()

    def _load_data(self, name: str) -> Any:
        _check(Path(self._data_path(name)))
        return super()._load_data(name)


def _check(path: Path) -> None:
    content = path.read_bytes()
    if hashlib.sha256(content[:-32]).digest() != content[-32:]:
        raise DamagedError(path.name)


_said: set[str] = set()


def _say(message: str) -> None:
    """Print a message on stderr, each message only once per process."""
    if message not in _said:
        _said.add(message)
        print(f"racing: {message}", file=sys.stderr, flush=True)
