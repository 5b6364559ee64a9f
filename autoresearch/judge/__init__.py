"""Decides by pure functions: what a gate makes of measurements, and how often gates are wrong.

May import: `common`, `autoresearch.config` and `autoresearch.types`. Nothing here runs anything.
"""
