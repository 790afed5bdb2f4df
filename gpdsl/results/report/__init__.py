"""A fit as one web page. Comes in: a fit and rows of data. Goes out: HTML that asks no other machine for anything.

Pictures, styles and formulas are inside, no script is, and all that comes from models and data is escaped.
"""
