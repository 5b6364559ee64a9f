"""Keeps artifacts: each is a JSON file whose name is the hash of its content."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from autoresearch.types.artifact import Artifact, artifact_of
from common.errors import UserError
from common.files import atomic_write_bytes, to_plain


class ArtifactStore:
    """The artifacts of one campaign.

    Args:
        directory: of the files.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def keep(self, artifact: Artifact) -> str:
        """Write an artifact; returns its hash."""
        plain = {"kind": artifact.kind, **to_plain(artifact)}
        content = json.dumps(plain, sort_keys=True, indent=1).encode()
        name = hashlib.sha256(content).hexdigest()
        atomic_write_bytes(self._path(name), content)
        return name

    def load(self, name: str) -> Artifact:
        """The artifact with the hash `name`; `UserError` if it is missing or was changed."""
        path = self._path(name)
        try:
            content = path.read_bytes()
        except OSError as error:
            raise UserError(
                f"{path}: no such artifact, though the ledger names it ({error.strerror or error})"
            ) from None
        if hashlib.sha256(content).hexdigest() != name:
            raise UserError(f"{path} was changed: its content does not have the hash of its name")
        try:
            return artifact_of(json.loads(content))
        except ValueError as error:
            raise UserError(f"{path} is no artifact: {error}") from None

    def _path(self, name: str) -> Path:
        return self.directory / f"{name}.json"
