"""What happened in a worker: steps, communication, bytes, metrics, in blocks of plain lines.

Nothing here imports torch or NumPy by itself; without FARANDOLE_RECORD_DIR nothing is recorded, and
each place that could tell something costs one comparison with None.
"""

from farandole.recorder.ending import LaunchEndedError, StopLaunch
from farandole.recorder.recorder import Recorder, current

__all__ = ["LaunchEndedError", "Recorder", "StopLaunch", "current"]
