"""Why a timeline looks as it does: what sets its length, and what each device waits for.

Both are read off a timeline, simulated or measured, and need no hook of the core. Lesson 05, "What makes an
order legal", explains its waiting devices with it; charts frame the critical path.

Names: ``critical_path``, ``why_idle``, and ``Explanation``, which is what ``why_idle`` gives.
"""
