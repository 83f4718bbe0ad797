"""First on the PYTHONPATH of workers: lets Farandole in, then the user's own sitecustomize.

Python imports this before anything of the user's; it costs nothing outside of a worker.
"""

import os
import sys
from importlib import import_module


def _next_sitecustomize() -> None:
    """Import the sitecustomize that this one stands in front of, if there is one."""
    # os.path, not pathlib, whose import would be a good part of this module's cost.
    here = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120
    path = list(sys.path)
    sys.path[:] = [entry for entry in path if os.path.abspath(entry) != here]  # noqa: PTH100
    mine = sys.modules.pop("sitecustomize", None)
    try:
        import_module("sitecustomize")
    except ImportError as error:
        if error.name != "sitecustomize":
            raise
        if mine is not None:
            sys.modules["sitecustomize"] = mine
    finally:
        added = [entry for entry in sys.path if entry not in path]
        sys.path[:] = path + added


if os.environ.get("FARANDOLE_RANK") or os.environ.get("FARANDOLE_RECORD_DIR"):
    try:
        from farandole.launch import startup
    except ImportError:
        pass  # another interpreter than the launcher's, without Farandole
    else:
        startup.install()
_next_sitecustomize()
