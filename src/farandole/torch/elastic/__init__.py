"""Elastic training with PyTorch: Horovod's names, Horovod's meaning."""

from __future__ import annotations

from farandole.elastic.state import ObjectState, State, run, run_fn
from farandole.torch.elastic.sampler import ElasticSampler
from farandole.torch.elastic.state import TorchState

__all__ = ["ElasticSampler", "ObjectState", "State", "TorchState", "run", "run_fn"]
