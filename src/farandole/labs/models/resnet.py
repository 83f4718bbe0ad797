"""ResNet-18 for CIFAR-10, in PyTorch: the network whose times the cifar10 lab tells."""

from __future__ import annotations

# The bench has it in a file that needs no farandole; there is one such network, not two.
from farandole.bench.workers.models import resnet18

__all__ = ["PARAMETERS", "resnet18"]

PARAMETERS = 11_173_962
