"""Checks: functions that run on every rank at once and assert what they like there.

TensorFlow takes seconds to start and does not survive a fork, so that all checks run in one launch
(`programs/run_checks.py`), and the tests look up in its output how each of them went.
"""
