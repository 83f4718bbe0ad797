from __future__ import annotations

import pytest

from farandole.launch.slurm_jobs import (
    Status,
    end_words,
    parse_sacct,
    parse_scontrol,
    refusal,
    waiting_words,
)

# Shortened lines of SLURM 22.05.
LINE = (
    "JobId=12 JobName=train UserId=ada(1000) GroupId=ada(1000) Priority=1 Account=(null) "
    "JobState={state} Reason={reason} Dependency=(null) Requeue=1 ExitCode={code} RunTime=00:00:03 "
    "TimeLimit=00:10:00 NodeList={nodes} BatchHost=n1 NumNodes=2 NumCPUs=8 Command=(null) "
    "WorkDir=/home/ada StdErr=/home/ada/farandole-12.out StdIn=/dev/null "
    "StdOut=/home/ada/farandole-12.out Power="
)


def line(state: str, *, reason: str = "None", code: str = "0:0", nodes: str = "n[1-2]") -> str:
    return LINE.format(state=state, reason=reason, code=code, nodes=nodes)


def test_a_line_of_scontrol() -> None:
    found = parse_scontrol(line("RUNNING"))
    assert found == Status(state="RUNNING", nodes="n[1-2]")
    assert not found.waiting
    assert not found.ended


def test_a_waiting_job() -> None:
    found = parse_scontrol(line("PENDING", reason="Resources", nodes="(null)"))
    assert found is not None
    assert found.waiting
    assert found.nodes == ""
    assert waiting_words(found) == "it waits (Resources)"
    never = parse_scontrol(line("PENDING", reason="PartitionNodeLimit", nodes="(null)"))
    assert never is not None
    assert "cannot begin as it was asked for (PartitionNodeLimit)" in waiting_words(never)


@pytest.mark.parametrize(
    ("state", "code", "exit_code"),
    [
        ("COMPLETED", "0:0", 0),
        ("FAILED", "3:0", 3),
        ("FAILED", "0:9", 137),
        ("CANCELLED", "0:15", 143),
        ("CANCELLED", "0:0", 1),
        ("TIMEOUT", "0:0", 124),
        ("OUT_OF_MEMORY", "0:125", 253),
        ("NODE_FAIL", "0:0", 1),
    ],
)
def test_ends_and_their_codes(state: str, code: str, exit_code: int) -> None:
    found = parse_scontrol(line(state, code=code))
    assert found is not None
    assert found.ended
    assert found.exit_code == exit_code


def test_accounts_know_longer() -> None:
    assert parse_sacct("FAILED|3:0|n[1-2]\n") == Status(state="FAILED", code=3, nodes="n[1-2]")
    assert parse_sacct("CANCELLED by 1000|0:15|n1\n") == Status(
        state="CANCELLED", signal=15, nodes="n1"
    )


@pytest.mark.parametrize("text", ["", "\n", "Slurm accounting storage is disabled\n"])
def test_what_is_no_answer(text: str) -> None:
    assert parse_scontrol(text) is None
    assert parse_sacct(text) is None


def test_ends_in_words() -> None:
    assert end_words(Status(state="FAILED", code=3)) == "FAILED, exit code 3"
    assert end_words(Status(state="FAILED", signal=9)) == "FAILED, signal 9"
    assert "time limit" in end_words(Status(state="TIMEOUT"))


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "sbatch: error: invalid partition specified: none\n"
            "sbatch: error: Batch job submission failed: Invalid partition name specified\n",
            "Batch job submission failed: Invalid partition name specified "
            "(invalid partition specified: none)",
        ),
        ("sbatch: error: Unable to open file x\n", "Unable to open file x"),
        ("", "sbatch failed and did not say why"),
        (
            "sbatch: unrecognized option '--foo=bar'\nTry \"sbatch --help\" for more information\n",
            "unrecognized option '--foo=bar'",
        ),
    ],
)
def test_refusals_are_one_sentence(text: str, sentence: str) -> None:
    assert refusal(text, "sbatch") == sentence
