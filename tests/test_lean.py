"""What tests start does without parts of torch, and has them where they are wanted."""

from __future__ import annotations

import subprocess
import sys

from tests.conftest import clean_environ

SCRIPT = """
import sys
import torch
import torch._dynamo

weight = torch.nn.Parameter(torch.ones(3))
optimizer = torch.optim.SGD([weight], lr=0.5)
weight.sum().backward()
optimizer.step()
assert weight.tolist() == [0.5] * 3
assert torch.randperm(1, generator=torch.Generator().manual_seed(1)).tolist() == [0]
assert not {"sympy", "torch._dynamo.eval_frame", "torch._decomp"} & sys.modules.keys()

import torchgen.model
assert torchgen.model.FunctionSchema.parse("a(Tensor x) -> Tensor").arguments.flat_all
assert torch.export.Dim("batch").__name__ == "batch"
assert torch.export is sys.modules["torch.export"]
assert "torch._decomp" in sys.modules
assert torch.nn.functional.gelu(torch.ones(3, device="meta")).is_meta

import torch._dynamo.config
import torch._dynamo.eval_frame as frame
assert frame is torch._dynamo.eval_frame is sys.modules["torch._dynamo.eval_frame"]
assert torch._dynamo is sys.modules["torch._dynamo"]
assert torch._dynamo.__file__
assert torch.compile(lambda x: x + 1, backend="eager")(torch.ones(2)).tolist() == [2.0, 2.0]
assert isinstance(torch.compile(torch.nn.Identity()), torch._dynamo.OptimizedModule)
import importlib.metadata, importlib.util
assert importlib.metadata.version("numpy")
assert importlib.util.find_spec("jax") is None
try:
    import jax
except ModuleNotFoundError:
    assert "jax" not in sys.modules
    print("done")
"""


def test_torch_without_its_compiler_until_something_is_compiled() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env=clean_environ(TESTS_WITHOUT="jax"),
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.stdout == "done\n", done.stderr
