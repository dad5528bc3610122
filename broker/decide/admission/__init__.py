"""Whose turn it is: fair shares, quotas with borrowing, and what is kept back. Pure.

Before a problem is decided, admission says which copies go first, how much each tenant may take
and what has to make room. Read `admit.py` first. The rules in words: docs/fair-share.md.
"""
