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
        Signature("grouped allreduce", "uint8", (24,), members=(SUM, SUM._replace(dtype="int8"))),
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


def test_groups_agree_member_by_member() -> None:
    def group(*members: Signature) -> Signature:
        return Signature("grouped allgather", "uint8", (len(members),), members=members)

    rows = [Signature("allgather", "float32", (count, 3)) for count in (1, 2)]
    assert mismatch("x", [group(rows[0], SUM), group(rows[1], SUM)]) == ""
    other = SUM._replace(dtype="int8")
    text = mismatch("x", [group(SUM, SUM), group(SUM, other)])
    assert "rank 0: grouped allgather of 2 (allreduce of float32[2, 3], sum; allreduce of" in text
    assert "int8[2, 3]" in text
    assert mismatch("x", [group(SUM), group(SUM, SUM)]) != ""
    # Of many, those shown are the same; the digests are not.
    many = [SUM] * 20
    text = mismatch("x", [group(*many, SUM), group(*many, other)])
    assert text.count("digest of all") == 2
    assert "int8" not in text


def test_ranks_have_the_numbers_that_users_know() -> None:
    roots = [Signature("broadcast", "int8", (1,), root=root) for root in (0, 1)]
    text = mismatch("x", [roots[0], None, roots[1]], ranks=(2, 5, 7))
    assert "rank 2: broadcast of int8[1], root 2" in text
    assert "rank 7: broadcast of int8[1], root 5" in text
