"""The networks of the world model: encoder, recurrent core, heads, decoder, and all in one.

May import: `common`, `rssm.config`.
"""
