"""Proves the par of every puzzle with OR-Tools' CP-SAT: ``python -m prove``. Nothing else here needs OR-Tools."""
