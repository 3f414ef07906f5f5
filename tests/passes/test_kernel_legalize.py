"""legalize, before and after."""

from __future__ import annotations

import pytest

from ranvier.compiler.kernel.legalize import legalize
from ranvier.errors import RanvierError
from ranvier.ir.text import parse_kernel, print_kernel
from ranvier.target import get

TRN2 = get("trn2")
HEAD = """kernel "k" target=trn2 {
  buffer %x: hbm float32[128, 512] input
  buffer %y: hbm float32[128, 512] output
"""


def kernel(buffers: str, body: str):
    lines = "".join(f"  buffer {line.strip()}\n" for line in buffers.strip().splitlines())
    return parse_kernel(f"{HEAD}{lines}  inputs %x\n  outputs %y\n  body {{\n{body}\n  }}\n}}\n")


TILES = """%a: sbuf float32[128, 512] temp
           %b: sbuf float32[128, 512] temp
           %c: sbuf float32[128, 512] temp
           %r: sbuf float32[128, 1] temp"""


def body_of(made) -> list[str]:
    return [line.strip() for line in print_kernel(made).split("body {")[1].strip("\n {}").splitlines()]


def test_results_nobody_reads_are_dropped_with_their_tiles():
    before = kernel(TILES, """
        dma_copy dst=%a src=%x
        tensor_copy dst=%b src=%a
        tensor_copy dst=%c src=%b
        dma_copy dst=%y src=%a""")
    after = legalize(before, TRN2)
    assert body_of(after) == ["dma_copy dst=%a src=%x", "dma_copy dst=%y src=%a"]
    assert [b.name for b in after.buffers] == ["x", "y", "a"]


def test_a_write_that_is_overwritten_unread_is_dropped():
    before = kernel(TILES, """
        dma_copy dst=%b src=%x
        dma_copy dst=%a src=%x
        tensor_copy dst=%a src=%b
        dma_copy dst=%y src=%a""")
    assert [i.MNEMONIC for i in legalize(before, TRN2).body] == ["dma_copy", "tensor_copy", "dma_copy"]


def test_a_partial_write_does_not_hide_what_was_there():
    before = kernel(TILES, """
        dma_copy dst=%a src=%x
        memset dst=%a[p0 f0 | 1x128 1x4] value=0.0
        dma_copy dst=%y src=%a""")
    assert len(legalize(before, TRN2).body) == 3


def test_hidden_state_keeps_an_instruction_alive():
    activation = "activation dst=%b op=square data=%a reduce_op=add reduce_cmd=reset_reduce"
    reads = activation.replace("dst=%b", "dst=%c").replace("reset_reduce", "reduce") + " reduce_res=%r"
    before = kernel(TILES, f"""
        dma_copy dst=%a src=%x
        {activation}
        {reads}
        dma_copy dst=%y[f0 | 512x128 1x1] src=%r""")
    assert [i.MNEMONIC for i in legalize(before, TRN2).body].count("activation") == 2
    unread = kernel(TILES, f"""
        dma_copy dst=%a src=%x
        {activation}
        dma_copy dst=%y src=%a""")
    assert [i.MNEMONIC for i in legalize(unread, TRN2).body] == ["dma_copy", "dma_copy"]


def test_undecided_accumulation_is_refused():
    before = kernel("%a: sbuf float32[128, 128] temp\n%p: psum float32[128, 128] temp", """
        dma_copy dst=%a src=%x[f0 | 512x128 1x128]
        nc_matmul dst=%p stationary=%a moving=%a
        tensor_copy dst=%a src=%p
        dma_copy dst=%y[f0 | 512x128 1x128] src=%a""")
    with pytest.raises(RanvierError) as caught:
        legalize(before, TRN2)
    assert caught.value.code == "E0901" and "accumulate" in str(caught.value)


def test_an_illegal_instruction_is_refused_with_its_own_rule():
    before = kernel(TILES, """
        dma_copy dst=%a src=%x
        tensor_copy dst=%b[p0 f0 | 1x128 1x256] src=%a
        dma_copy dst=%y src=%b""")
    with pytest.raises(RanvierError) as caught:
        legalize(before, TRN2)
    assert caught.value.rule == "ISA-9"
