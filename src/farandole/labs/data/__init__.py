"""The labs' data: loaders for what a user brings, and what stands in for it."""

from __future__ import annotations

from farandole.labs.data.caltech import describe_caltech, load_caltech
from farandole.labs.data.cifar10 import describe_cifar10, load_cifar10
from farandole.labs.data.driving import describe_driving, load_driving
from farandole.labs.data.faces import describe_faces, load_faces
from farandole.labs.data.fruits import describe_fruits, load_fruits
from farandole.labs.data.mnist import describe_mnist, load_mnist
from farandole.labs.data.samples import Images

__all__ = [
    "Images",
    "describe_caltech",
    "describe_cifar10",
    "describe_driving",
    "describe_faces",
    "describe_fruits",
    "describe_mnist",
    "load_caltech",
    "load_cifar10",
    "load_driving",
    "load_faces",
    "load_fruits",
    "load_mnist",
]
