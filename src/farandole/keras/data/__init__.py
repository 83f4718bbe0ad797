"""Every worker's share of the training data: `shard`."""

from __future__ import annotations

from farandole.keras.data.sharding import EpochFollower, is_sharded, shard, sharded_part

__all__ = ["EpochFollower", "is_sharded", "shard", "sharded_part"]
