"""Run whole programs one after the other, each with its folder: TensorFlow is imported once."""

from __future__ import annotations

import os
import runpy
import sys


def main() -> None:
    given = sys.argv[1:]
    for program, folder in zip(given[::2], given[1::2], strict=True):
        sys.argv = [program, folder]
        os.chdir(folder)
        runpy.run_path(program, run_name="__main__")


main()
