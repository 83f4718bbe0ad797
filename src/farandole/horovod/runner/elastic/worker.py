"""What tells workers of changed hosts, by Horovod's names."""

from __future__ import annotations

from farandole.elastic.state import HostUpdateResult, WorkerNotificationManager

__all__ = ["HostUpdateResult", "WorkerNotificationManager"]
