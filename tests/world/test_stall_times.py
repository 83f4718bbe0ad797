"""When a stall is reported: Farandole's variables, and Horovod's."""

from __future__ import annotations

import math

import pytest

from farandole.errors import UsageError
from farandole.world.environment import StallTimes, read_stall_times

NEVER = math.inf


@pytest.mark.parametrize(
    ("environ", "warning_s", "shutdown_s"),
    [
        ({}, 60.0, NEVER),
        ({"FARANDOLE_STALL_WARNING": "5"}, 5.0, NEVER),
        ({"FARANDOLE_STALL_WARNING": "0"}, NEVER, NEVER),
        ({"FARANDOLE_STALL_SHUTDOWN": "10"}, 10.0, 10.0),
        ({"FARANDOLE_STALL_SHUTDOWN": "100"}, 60.0, 100.0),
        ({"FARANDOLE_STALL_SHUTDOWN": "0"}, 60.0, NEVER),
        ({"FARANDOLE_STALL_WARNING": "0", "FARANDOLE_STALL_SHUTDOWN": "9"}, NEVER, 9.0),
        ({"HOROVOD_STALL_CHECK_TIME_SECONDS": "7"}, 7.0, NEVER),
        ({"HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "90"}, 60.0, 90.0),
        ({"HOROVOD_STALL_CHECK_DISABLE": "1"}, NEVER, NEVER),
        ({"HOROVOD_STALL_CHECK_DISABLE": "0"}, 60.0, NEVER),
        (
            {"FARANDOLE_STALL_WARNING": "3", "HOROVOD_STALL_CHECK_TIME_SECONDS": "7"},
            3.0,
            NEVER,
        ),
        ({"FARANDOLE_STALL_WARNING": "3", "HOROVOD_STALL_CHECK_DISABLE": "1"}, 3.0, NEVER),
    ],
)
def test_variables(environ: dict[str, str], warning_s: float, shutdown_s: float) -> None:
    expected = StallTimes(warning_s=warning_s, shutdown_s=shutdown_s)
    assert read_stall_times(environ) == expected


@pytest.mark.parametrize(
    ("environ", "words"),
    [
        ({"FARANDOLE_STALL_WARNING": "soon"}, "FARANDOLE_STALL_WARNING=soon"),
        ({"FARANDOLE_STALL_SHUTDOWN": "-1"}, "FARANDOLE_STALL_SHUTDOWN=-1"),
        ({"HOROVOD_STALL_CHECK_TIME_SECONDS": "nan"}, "HOROVOD_STALL_CHECK_TIME_SECONDS=nan"),
        (
            {"FARANDOLE_STALL_WARNING": "9", "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "9"},
            "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS=9 would end the job before "
            "FARANDOLE_STALL_WARNING=9",
        ),
    ],
)
def test_what_cannot_be(environ: dict[str, str], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        read_stall_times(environ)
