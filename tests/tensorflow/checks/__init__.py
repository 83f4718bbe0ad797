"""Checks: functions that run on every rank at once and assert what they like there.

TensorFlow takes seconds to start and does not survive a fork, so that all checks run in one launch
(`tests/checking.py`), and the tests look up how each of them went.
"""
