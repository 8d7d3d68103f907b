"""The site: ``python -m docs`` (``make docs``) builds it in build/docs, from nothing and without network.

Pages that somebody wrote are Markdown here; how-to pages are run while the site is built. The rest is made
first, in build/docs-source, where Sphinx reads: the lessons with their stored outputs (``lessons.py``), the
gallery of all families with its numbers (``gallery.py``), and the API by chapter (``api.py``).
"""
