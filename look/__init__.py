"""Every lesson as a student sees it: in JupyterLab, in a real browser, opened and then run.

Run as ``python -m look``, or ``python -m look 04 13`` for some lessons.

nbval compares what cells return. Whether a chart shows and fits, in the dark and in a narrow window too, is
seen only in a browser. This checks what a program can check, and stores screenshots in `build/look/`.
"""
