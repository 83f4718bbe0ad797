"""Every worker's share of the training data: `shard`."""

from __future__ import annotations

from farandole.keras.data.sharding import Following, is_sharded, shard, sharded_part

__all__ = ["Following", "is_sharded", "shard", "sharded_part"]
