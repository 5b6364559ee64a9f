"""Worlds: the racing engine and the text worlds, without any learning code."""
