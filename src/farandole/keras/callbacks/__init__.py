"""Callbacks for `model.fit` on several workers, with Horovod's names and meaning.

`standard(...)` returns the right ones in the right order.
"""

from __future__ import annotations

from farandole.keras.callbacks.best_model import BestModelCheckpoint
from farandole.keras.callbacks.broadcast import BroadcastGlobalVariablesCallback
from farandole.keras.callbacks.learning_rate import (
    LearningRateScheduleCallback,
    LearningRateWarmupCallback,
    RecipeCallback,
)
from farandole.keras.callbacks.metric_average import MetricAverageCallback
from farandole.keras.callbacks.standard import StopTogetherCallback, standard

__all__ = [
    "BestModelCheckpoint",
    "BroadcastGlobalVariablesCallback",
    "LearningRateScheduleCallback",
    "LearningRateWarmupCallback",
    "MetricAverageCallback",
    "RecipeCallback",
    "StopTogetherCallback",
    "standard",
]
