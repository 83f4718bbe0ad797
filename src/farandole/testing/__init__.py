"""Faults on purpose, for tests of Farandole and of scripts that use it."""

from farandole.testing.faults import FailAt, InjectedFault

__all__ = ["FailAt", "InjectedFault"]
