"""Run checks on this rank, of one program after the other, and write down what each gave.

Arguments are a folder for that, and programs with their checks:
keras.callbacks.details:check_this,check_that
"""

from __future__ import annotations

import faulthandler
import importlib
import json
import sys
import traceback
from pathlib import Path

import farandole.keras as hvd

_HANG_S = 60.0


def main() -> None:
    folder, *arguments = sys.argv[1:]
    hvd.init()
    written = Path(folder, f"{hvd.rank()}.json")
    outcomes: dict[str, str] = {}
    for argument in arguments:
        program, _, checks = argument.partition(":")
        module = importlib.import_module(f"tests.{program}")
        for check in checks.split(","):
            # The last line tells where a launch hangs; stacks follow if it does.
            name = f"{program}:{check}"
            print(name, flush=True)
            faulthandler.dump_traceback_later(_HANG_S, exit=True)
            try:
                getattr(module, check)()
                outcomes[name] = ""
            except Exception:
                outcomes[name] = traceback.format_exc()
            faulthandler.cancel_dump_traceback_later()
            # After each: if the launch breaks down, what went before it still counts.
            written.write_text(json.dumps(outcomes))


main()
