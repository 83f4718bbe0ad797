"""Ways to start an agent on every host: ssh and other remote shells, and what a cluster offers."""

from farandole.launch.starters.protocol import RunningAgents, Starter

__all__ = ["RunningAgents", "Starter"]
