"""Faults on purpose and fake worlds, for tests of Farandole and of scripts that use it."""

from farandole.testing.faults import FailAt, InjectedFault
from farandole.testing.nursery import Nursery
from farandole.testing.shaped import ShapedWorld
from farandole.testing.worlds import FakeWorld, Member, RankError

__all__ = ["FailAt", "FakeWorld", "InjectedFault", "Member", "Nursery", "RankError", "ShapedWorld"]
