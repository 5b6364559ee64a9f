"""What every learner of behaviour uses: action distributions, returns, scaling.

May import: `common`.
"""
