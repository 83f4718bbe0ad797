"""Importing Farandole's answer to Horovod, without its answering in the tests' own process."""

from __future__ import annotations

import sys

import farandole.horovod  # noqa: F401
from farandole.launch.horovod_alias import withdraw

withdraw(sys.meta_path)
