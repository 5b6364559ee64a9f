"""Shows a campaign to people: a table in the terminal, a section of REPORT.md, a page, pictures.

May import: `common` and all of `autoresearch` but the commands, which alone import it.
"""
