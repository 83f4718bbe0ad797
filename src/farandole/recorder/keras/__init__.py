"""What Keras does in a worker: fits, their data, and loops of a program's own.

Its own classes are followed, not the program's: a callback list tells of epochs and batches on the
main thread, an epoch iterator of data. Nothing is added to the program's callbacks but one at their
end, which reads an epoch's metrics after all others have changed them.
"""

from __future__ import annotations

from farandole.recorder.keras.install import install

__all__ = ["install"]
