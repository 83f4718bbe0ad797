"""Who am I: rank, size and hosts, read once from the environment; and meeting the others."""

from farandole.world.environment import World, read_world
from farandole.world.rendezvous import Rendezvous, connect

__all__ = ["Rendezvous", "World", "connect", "read_world"]
