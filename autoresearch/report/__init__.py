"""A campaign as people read it: a section of REPORT.md, a page, pictures.

May import: `common` and all of `autoresearch`.
"""
