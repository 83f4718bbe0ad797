"""Change training images at random: turn, zoom, shift and mirror them, by one map for each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from farandole.errors import MissingExtraError
from farandole.labs.data.samples import Pixels


@dataclass(frozen=True, slots=True, kw_only=True)
class Augmentation:
    """How far images are changed, either way; `hvd.shard(..., prepare=...)` takes it.

    What a sample goes through depends on seed, epoch and sample, and not on who trains on it: it is
    the same for any number of workers.
    """

    seed: int
    rotation: float = 0.0
    """A part of a full turn."""
    zoom: float = 0.0
    """A part of the image's size."""
    shift: float = 0.0
    """A part of the image's size, along both sides."""
    flip: bool = False
    """Whether every other image is mirrored, left to right."""

    def __call__(self, batch: Any, chosen: NDArray[np.int64], epoch: int) -> Any:
        """Return images of a batch changed, and what belongs to them as it is."""
        images, *others = batch
        return warp(images, self.maps(chosen, epoch)), *others

    def maps(self, chosen: NDArray[np.int64], epoch: int) -> NDArray[np.float32]:
        """Return for each sample where its pixels come from: 2x3, with -1 to 1 along each side."""
        drawn = np.stack(
            [np.random.default_rng((self.seed, epoch, sample)).random(5) for sample in chosen]
        )
        turn, zoom, right, down = (2 * drawn[:, :4] - 1).T
        turn = turn * self.rotation * 2 * np.pi
        zoom = 1 + zoom * self.zoom
        mirror = np.where(self.flip & (drawn[:, 4] < 0.5), -1.0, 1.0)
        # A side is 2 long.
        right, down = 2 * self.shift * right, 2 * self.shift * down
        across = [mirror * zoom * np.cos(turn), -zoom * np.sin(turn), right]
        along = [mirror * zoom * np.sin(turn), zoom * np.cos(turn), down]
        return np.array([across, along], np.float32).transpose(2, 0, 1)


def warp(images: Pixels, maps: NDArray[np.float32]) -> Pixels:
    """Return images whose pixels come from elsewhere; outside, they are mirrored at the edge.

    Raises:
        MissingExtraError: torch is not installed.
    """
    try:
        import torch
        from torch.nn.functional import affine_grid, grid_sample
    except ImportError:
        raise MissingExtraError(
            "Images are turned and shifted by torch, which is not installed. Try: pip install "
            "'farandole[torch]'"
        ) from None
    source = torch.from_numpy(images).permute(0, 3, 1, 2).float()
    places = affine_grid(torch.from_numpy(maps), list(source.shape), align_corners=False)
    moved = grid_sample(
        source, places, mode="bilinear", padding_mode="reflection", align_corners=False
    )
    last = moved.round_().to(torch.uint8).permute(0, 2, 3, 1)
    changed: Pixels = last.contiguous().numpy()
    return changed
