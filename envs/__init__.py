"""Worlds: the racing simulator, without any learning code."""

import dreamracer  # noqa: F401  refuses foreign packages of the same names
