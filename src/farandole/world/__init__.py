"""Who am I: rank, size and hosts, read once from the environment; and meeting the others."""

from farandole.world.environment import read_world
from farandole.world.rendezvous import Rendezvous, connect
from farandole.world.world import World

__all__ = ["Rendezvous", "World", "connect", "read_world"]
