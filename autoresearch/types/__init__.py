"""What the folders of this room pass to each other: tasks, results, runs, proposals, verdicts.

May import: `common`, `autoresearch.config`. Everything else in `autoresearch` may import it.
"""
