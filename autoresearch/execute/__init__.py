"""Where tasks run: processes of this machine or of a Ray cluster, and what they leave behind.

May import: `common`, `autoresearch.config`.
"""
