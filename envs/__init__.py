"""Worlds: the racing engine and the text worlds, without any learning code."""

import dreamracer  # noqa: F401  refuses foreign packages of the same names
