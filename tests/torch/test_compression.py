from __future__ import annotations

import torch

from farandole.torch.compression import Compression, Compressor


def test_none_sends_what_it_is_given() -> None:
    tensor = torch.tensor([1 / 3])
    sent, ctx = Compression.none.compress(tensor)
    assert sent is tensor
    assert Compression.none.decompress(sent, ctx) is tensor


def test_all_are_compressors() -> None:
    for each in (Compression.none, Compression.fp16, Compression.bf16):
        assert issubclass(each, Compressor)


def test_fp16_sends_half_and_returns_the_old_precision() -> None:
    tensor = torch.tensor([1 / 3], dtype=torch.float64)
    sent, ctx = Compression.fp16.compress(tensor)
    assert sent.dtype is torch.float16
    back = Compression.fp16.decompress(sent, ctx)
    assert back.dtype is torch.float64
    assert back == tensor.half().double()


def test_whole_numbers_are_left_alone() -> None:
    tensor = torch.tensor([70000])
    sent, ctx = Compression.fp16.compress(tensor)
    assert Compression.fp16.decompress(sent, ctx).tolist() == [70000]
