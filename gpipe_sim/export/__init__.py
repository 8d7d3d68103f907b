"""Schedules as files of PyTorch, and measured steps that ship with the package.

It reads and makes plain schedules and timelines, so the core needs to know nothing of it: ``to_torch_csv``
and ``from_torch_csv`` for orders, ``recorded_run`` and ``recorded_where`` for steps that were measured once.
The lesson is "On real devices".
"""
