"""The rungs of the ladder: their settings, their training, their verdicts and their records.

Used by `experiments.ladder`, the command. May import: common, rssm's configuration, probes.
"""
