"""The figures of the README and the lessons.

Each ``figures/NAME.py`` has ``data()``, the numbers, and ``draw(data)``, the picture of these numbers and no
others. ``python -m figures`` writes both beside it, as NAME.json and NAME.png. Modules whose name begins with
an underscore are what the figures share.
"""
