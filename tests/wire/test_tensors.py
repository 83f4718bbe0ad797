"""Torch's types in messages."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from farandole.errors import ObjectFormatError, PickleRefusedError
from farandole.wire import decode, encode

DTYPES = sorted(
    {d for d in vars(torch).values() if isinstance(d, torch.dtype)}
    - {torch.qint8, torch.qint32, torch.quint8, torch.quint4x2, torch.quint2x4},
    key=str,
)


def there_and_back(obj: Any) -> Any:
    return decode(encode(obj, allow_pickle=False), allow_pickle=False)


def as_bytes(tensor: torch.Tensor) -> bytes:
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape and as_bytes(a) == as_bytes(b)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (0, 4)], ids=str)
def test_every_dtype_bit_for_bit(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    numel = torch.Size(shape).numel()
    pattern = torch.arange(1, numel * dtype.itemsize + 1, dtype=torch.uint8)
    tensor = pattern.view(dtype).reshape(shape)
    assert same(there_and_back(tensor), tensor)


@pytest.mark.parametrize(
    "tensor",
    [
        torch.arange(12.0).reshape(3, 4).t(),
        torch.arange(12.0)[::3],
        torch.arange(3.0).expand(4, 3),
        torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
        torch.tensor([1 + 2j, 3j]).conj(),
        torch.tensor([1 + 2j, 3j]).conj().imag,
    ],
    ids=["transposed", "strided", "expanded", "channels-last", "conjugate", "negative"],
)
def test_views_arrive_as_contiguous_values(tensor: torch.Tensor) -> None:
    out = there_and_back(tensor)
    assert torch.equal(out, tensor)
    assert out.is_contiguous()


def test_history_stays_behind() -> None:
    leaf = torch.ones(2, requires_grad=True)
    for tensor in (leaf, leaf * 2):
        out = there_and_back(tensor)
        assert not out.requires_grad
        assert torch.equal(out, tensor)


@pytest.mark.parametrize("requires_grad", [True, False])
def test_a_parameter_stays_a_parameter(requires_grad: bool) -> None:
    parameter = torch.nn.Parameter(torch.randn(2, 2), requires_grad=requires_grad)
    out = there_and_back(parameter)
    assert type(out) is torch.nn.Parameter
    assert out.requires_grad is requires_grad
    assert torch.equal(out, parameter)


def test_both_sides_may_change_and_resize_their_tensor() -> None:
    tensor = torch.zeros(3)
    message = encode(tensor, allow_pickle=False)
    tensor.add_(1).resize_(100)
    out = decode(message, allow_pickle=False)
    out.add_(1).resize_(100)
    assert torch.equal(decode(message, allow_pickle=False), torch.zeros(3))


def test_a_tensor_that_occurs_twice_arrives_as_one() -> None:
    tied = torch.ones(1000)
    message = encode({"a": tied, "b": tied}, allow_pickle=False)
    out = decode(message, allow_pickle=False)
    assert out["a"] is out["b"]
    assert len(message) < 1.1 * tied.nbytes


def test_a_training_state_with_model_and_optimizer() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, betas=(0.8, 0.9))
    model(torch.randn(5, 3)).sum().backward()
    optimizer.step()
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3}
    out = there_and_back(state)
    assert out["optimizer"]["param_groups"] == state["optimizer"]["param_groups"]
    model.load_state_dict(out["model"])
    optimizer.load_state_dict(out["optimizer"])
    assert out["model"]._metadata == state["model"]._metadata


@pytest.mark.parametrize(
    "obj", [torch.Size([2, 3]), torch.Size([]), torch.bfloat16, torch.device("cuda", 1)], ids=str
)
def test_small_types(obj: Any) -> None:
    out = there_and_back(obj)
    assert out == obj
    assert type(out) is type(obj)


@pytest.mark.parametrize(
    ("tensor", "reason"),
    [
        (torch.eye(2).to_sparse(), "layout torch.sparse_coo"),
        (torch.empty(2, device="meta"), "device meta"),
        (torch.zeros((1,) * 65), "65 dimensions"),
    ],
    ids=["sparse", "meta", "dimensions"],
)
def test_tensors_that_are_not_plain(tensor: torch.Tensor, reason: str) -> None:
    with pytest.raises(PickleRefusedError, match=reason):
        encode([tensor], allow_pickle=False)


def test_a_tensor_with_attributes_needs_pickle() -> None:
    tensor = torch.zeros(2)
    tensor.note = "mine"  # type: ignore[attr-defined]
    with pytest.raises(PickleRefusedError, match=r"attributes of its own \(note\)"):
        encode(tensor, allow_pickle=False)


@pytest.mark.parametrize(
    ("dtype", "shape", "num_bytes"),
    [
        (b"float32", [2], 4),
        (b"float32", [1 << 60], 0),
        (b"float32", [1 << 32, 1 << 32], 0),
        (b"no_such", [1], 4),
        (b"qint8", [4], 4),
        (b"float32", [1] * 65, 4),
    ],
)
def test_hostile_tensors(dtype: bytes, shape: list[int], num_bytes: int) -> None:
    def size(number: int) -> bytes:
        out = bytearray()
        while number > 0x7F:
            out.append(number & 0x7F | 0x80)
            number >>= 7
        return bytes((*out, number))

    message = b"\xfa\x01\x30" + size(len(dtype)) + dtype
    message += size(len(shape)) + b"".join(map(size, shape)) + size(num_bytes) + bytes(num_bytes)
    with pytest.raises(ObjectFormatError):
        decode(message, allow_pickle=False)
