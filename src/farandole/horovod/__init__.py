"""Horovod's own modules: importing this makes `import horovod` mean Farandole in this process.

`farandole run`, `study` and `horovodrun` do so for their workers. Elsewhere, say it first:

    import farandole.horovod
    import horovod.torch as hvd
"""

from __future__ import annotations

from farandole.horovod.runner import run
from farandole.launch import horovod_alias as _alias

__all__ = ["__version__", "run"]

__version__ = _alias.VERSION

_alias.install()
