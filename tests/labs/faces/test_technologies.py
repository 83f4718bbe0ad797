"""The layers, and what ran here."""

from __future__ import annotations

from dataclasses import replace

from farandole.labs.faces.technologies import answer_technologies
from farandole.labs.lab import Found
from tests.labs.faces.build import found, nothing, rows


def on(machine: dict[str, object]) -> Found:
    here = found()
    studies = {name: replace(info, machine=machine) for name, info in here.studies.items()}
    return replace(here, studies=studies)


def test_versions_come_from_the_studies_machine() -> None:
    versions = {"farandole": "0.1", "keras": "3.15", "torch": "2.13"}
    table = answer_technologies(on({"versions": versions, "gpus": []})).tables[0]
    here = {row["layer"]: row["here"] for row in rows(table)}
    assert here["framework"] == "keras 3.15 on torch 2.13"
    assert here["collectives"] == "shared memory"


def test_a_machine_with_gpus_has_nccl() -> None:
    table = answer_technologies(on({"versions": {}, "gpus": ["T4", "T4"]})).tables[0]
    here = {row["layer"]: row["here"] for row in rows(table)}
    assert (here["collectives"], here["links"]) == ("NCCL", "2 GPUs of one host")


def test_what_the_lab_had_is_there_without_a_run() -> None:
    table = answer_technologies(nothing()).tables[0]
    lab = {row["layer"]: row["lab"] for row in rows(table)}
    assert lab["collectives"] == "MPI (MVAPICH2) on CPUs, NCCL on GPUs"
    assert {row["here"] for row in rows(table)} == {""}
