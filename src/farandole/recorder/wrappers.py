"""What averages gradients: DDP by its modules, and passes that exchange nothing."""

from __future__ import annotations
