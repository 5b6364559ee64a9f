"""The commands of `python -m autoresearch`, one function each.

May import: `common` and all of `autoresearch`. Nothing imports it but `autoresearch.__main__`.
"""
