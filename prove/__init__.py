"""Proves the par of every puzzle with CP-SAT: ``python -m prove``. Nothing else here needs OR-Tools."""
