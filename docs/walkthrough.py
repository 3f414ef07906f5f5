"""One matrix product, from PyTorch to a profile: what each stage is, by looking at it. Run this file; tests do as well.

    python docs/walkthrough.py
"""

import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import nn

import ranvier
from ranvier.compiler.pipeline import compile_graph
from ranvier.frontends.torch.import_fx import import_model
from ranvier.ir.text import parse_program, print_program
from ranvier.runtime.state import full_state
from ranvier.sim.interpreter import Interpreter, run_kernel
from ranvier.target import get

# 1. The model. Nothing is special about it; examples of its inputs fix shapes and dtypes.


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.weight = nn.Parameter(torch.randn(64, 32))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x @ self.weight)


model, x = Model(), torch.randn(16, 64)
expected = model(x).detach()

# 2. Import: torch.export, then one rule per operator. The graph is pure; parameters are names, not arrays.

imported = import_model(model, (x,))
print("--- graph ---", imported.graph, sep="\n")
assert [node.op.mnemonic for node in imported.graph.nodes] == ["matmul", "relu"]

# A graph has a meaning of its own: numpy, one operation after the other. Everything later is compared with it.

(reference,) = imported.graph.evaluate([x.numpy()], imported.param_arrays())
np.testing.assert_allclose(reference, expected.numpy(), rtol=1e-5, atol=1e-5)

# 3. The compiler. Each stage can be watched; they are functions from one valid artifact to the next.

target = get("trn2")
stages: dict[str, object] = {}
compiled = compile_graph(imported.graph, target=target, dtype="float32", observe=stages.__setitem__)
print("--- stages ---", ", ".join(stages), sep="\n")

# 4. The kernel: instructions on named buffers, in order. Its meaning is to run them one after the other.

mnemonics = [inst.MNEMONIC for inst in compiled.kernel.body]
print("--- kernel ---", ", ".join(mnemonics), sep="\n")
assert "nc_matmul" in mnemonics
# What depends on parameters alone was moved out: the prologue computes it once, on the host.
state = full_state(imported.param_arrays(), compiled.prologue)
(eager,) = run_kernel(compiled.kernel, target, [x.numpy()], state)

# 5. The program: a stream per engine, addresses, semaphores. It prints, and what prints parses back.

text = print_program(compiled.program, locations=False)
print("--- program ---", text, sep="\n")
assert print_program(parse_program(text), locations=False) == text

# The simulated core runs the streams by their semaphores alone, in any order these allow, always to the same bits.

for seed in range(3):
    (scheduled,) = Interpreter(compiled.program, target, seed=seed, dma="late").run([x.numpy()], state)
    assert scheduled.tobytes() == eager.tobytes()
np.testing.assert_allclose(scheduled, expected.numpy(), rtol=1e-5, atol=1e-5)

# 6. All of that in one call. The executable takes and gives what the model does.

exe = ranvier.compile(model, (x,), dtype="float32", cache=False)
torch.testing.assert_close(exe(x), expected, rtol=1e-5, atol=1e-5)

# 7. Time is a second pass over the same program. It needs no values.

profile = exe.profile()
print("--- profile ---", profile, sep="\n")
assert profile.latency_ns >= profile.bound_ns

# 8. A file is a program with its weights. It needs no torch to run.

with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "model.rvx"
    exe.save(path)
    loaded = ranvier.load(path)
    assert np.array_equal(loaded(x.numpy()), exe(x).numpy())

# 9. If a result is ever wrong, this names the first stage, value and line that is: each stage beside its reference.

report = ranvier.check(model, (x,), dtype="float32")
report.raise_if_failed()
print("--- check ---", *(f"{s.name}: {s.difference:.2g} of {s.tolerance:.2g} allowed" for s in report.stages), sep="\n")
