"""Pictures of fits. Comes in: a fit, and rows of data. Goes out: a matplotlib figure; `plot.py` lists the kinds.

matplotlib is imported only where something is drawn.
"""
