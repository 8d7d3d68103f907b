"""The figures of the README and the lessons.

In each ``figures/NAME.py``, ``data()`` computes the numbers and ``draw(data)`` draws these numbers and no
others. ``python -m figures`` writes both beside it, as NAME.json and NAME.png. Modules whose name begins with
an underscore hold what several figures use.
"""
