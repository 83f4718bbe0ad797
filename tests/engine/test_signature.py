"""Signatures: what must agree, and what an error says about it."""

from __future__ import annotations

import json

import pytest

from farandole.engine.signature import Signature, mismatch
from farandole.transport.reduction import Reduction

SUM = Signature.reducing("allreduce", "float32", (2, 3), Reduction())


@pytest.mark.parametrize(
    "signature",
    [
        SUM,
        Signature.reducing("allreduce", "int8", (), Reduction(op="max", prescale=0.1), "cuda"),
        Signature("broadcast", "bfloat16", (0, 4), root=3),
    ],
)
def test_a_signature_survives_json(signature: Signature) -> None:
    assert Signature.parse(json.loads(json.dumps(signature))) == signature


@pytest.mark.parametrize(
    "other",
    [
        SUM._replace(kind="broadcast"),
        SUM._replace(dtype="float64"),
        SUM._replace(shape=(3, 2)),
        SUM._replace(shape=(6,)),
        SUM._replace(op="max"),
        SUM._replace(prescale=2.0),
        SUM._replace(postscale=2.0),
        SUM._replace(root=1),
        SUM._replace(device="cuda"),
    ],
)
def test_every_difference_is_a_mismatch(other: Signature) -> None:
    assert mismatch("x", [SUM, SUM]) == ""
    assert mismatch("x", [SUM, other]) != ""


@pytest.mark.parametrize("kind", ["allgather", "alltoall"])
def test_only_the_first_dimension_of_gathers_is_free(kind: str) -> None:
    one = Signature(kind, "float32", (2, 3))
    assert mismatch("x", [one, one._replace(shape=(0, 3))]) == ""
    assert mismatch("x", [one, one._replace(shape=(2, 4))]) != ""
    assert mismatch("x", [one, one._replace(shape=(2,))]) != ""
    # As many numbers in all, and yet another tensor.
    assert mismatch("x", [one._replace(shape=(2, 3, 1)), one]) != ""


def test_the_error_names_all_ranks_and_what_each_submitted() -> None:
    other = SUM._replace(shape=(2, 4), op="average", prescale=0.5)
    text = mismatch("loss", [SUM, other, SUM])
    assert "'loss'" in text
    assert "ranks 0, 2: allreduce of float32[2, 3], sum" in text
    assert "rank 1: allreduce of float32[2, 4], average scaled by 0.5 before and 1 after" in text


def test_roots_and_devices_are_told() -> None:
    assert Signature("broadcast", "int8", (1,), root=2, device="cuda").describe() == (
        "broadcast of int8[1], root 2, on cuda"
    )
