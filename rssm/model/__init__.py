"""The networks of the world model: encoder, recurrent core, heads, decoder.

May import: `common`, `rssm.config`.
"""
