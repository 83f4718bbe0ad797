"""Every worker's share of the training data: `shard`."""

from __future__ import annotations

from farandole.keras.data.following import Following
from farandole.keras.data.sharding import is_sharded, shard

__all__ = ["Following", "is_sharded", "shard"]
