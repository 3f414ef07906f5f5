"""Placement: capacities, banks, rotation, spills, and what happens when nothing helps."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_programs import random_kernel, tiny_target

from ranvier import dtypes as dt
from ranvier.compiler.kernel.memory import Memory
from ranvier.compiler.kernel.place import place
from ranvier.compiler.kernel.spill import choose_victims, written_regions
from ranvier.errors import RanvierError
from ranvier.ir.conflicts import footprint
from ranvier.ir.kernel import accesses, verify_kernel
from ranvier.ir.text import parse_kernel, print_kernel
from ranvier.isa.access import AccessPattern, Buffer, Space
from ranvier.target import get

TRN2 = get("trn2")


def kernel(text: str):
    return parse_kernel(f'kernel "k" target=trn2 {{\n{text}\n}}\n')


def lines(made) -> list[str]:
    return [line.strip() for line in print_kernel(made).split("body {")[1].strip("\n {}").splitlines()]


def live_ranges(body) -> dict[Buffer, tuple[int, int]]:
    ranges: dict[Buffer, tuple[int, int]] = {}
    for i, inst in enumerate(body):
        for ap in accesses(inst):
            ranges[ap.buffer] = (ranges.get(ap.buffer, (i, i))[0], i)
    return ranges


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32), sbuf=st.sampled_from((768, 1024, 2048, 1 << 16)))
def test_live_tiles_never_share_bytes(seed, sbuf):
    target = tiny_target(sbuf)
    placed = place(random_kernel(seed, target, 50), target)
    verify_kernel(placed.kernel, target)
    ranges = {b: r for b, r in live_ranges(placed.kernel.body).items() if b.space.on_chip}
    at = {b: (placed.placements[b.name].byte, placed.placements[b.name].byte + b.bytes_per_partition) for b in ranges}
    limit = {Space.SBUF: sbuf, Space.PSUM: target.psum.bytes_per_partition}
    for a, (first, last) in ranges.items():
        assert at[a][0] >= 0 and at[a][1] <= limit[a.space]
        for b, (begin, end) in ranges.items():
            if a is not b and a.space is b.space and first <= end and begin <= last:
                assert at[a][1] <= at[b][0] or at[b][1] <= at[a][0]


def test_psum_tiles_stay_in_banks_and_take_turns():
    bank = int(TRN2.psum.bank_bytes.value)
    memory = Memory(TRN2.psum.bytes_per_partition, bank)
    starts = []
    for i, size in enumerate((512, 512, 2048, 1024, 4096)):
        start = memory.find(memory.size(size))
        assert start is not None
        memory.take(f"t{i}", start, memory.size(size))
        starts.append(start)
    assert starts == [0, bank, 2 * bank, 3 * bank, 4 * bank]
    memory.cursor = 0
    assert memory.find(memory.size(1536)) == 512
    assert memory.find(memory.size(2048)) == 6 * bank
    assert memory.find(memory.size(6144)) is None


def test_freed_memory_is_used_again_last():
    memory = Memory(1024)
    for name in "abc":
        start = memory.find(256)
        assert start is not None
        memory.take(name, start, 256)
    memory.release("a")
    assert memory.find(256) == 768
    assert memory.find(512) is None
    memory.take("d", 768, 256)
    assert memory.find(256) == 0
    assert Memory(1024).find_last(256) == 768 and memory.find_last(256) == 0


def test_victims_are_those_needed_last():
    memory = Memory(1024)
    for k, name in enumerate("abcd"):
        memory.take(name, 256 * k, 256)
    uses = {"a": 5, "b": 90, "c": 80, "d": None}
    assert choose_victims(memory, 256, uses.get) == (256, ["b"])
    assert choose_victims(memory, 512, uses.get) == (256, ["b", "c"])
    assert choose_victims(memory, 768, uses.get) == (0, ["a", "b", "c"])
    assert choose_victims(memory, 1024, uses.get) is None


SPILL = """  buffer %x: hbm float32[128, 64] input
  buffer %y: hbm float32[128, 64] output
  buffer %z: hbm float32[128, 64] output
  buffer %a: sbuf float32[128, 64] temp
  buffer %b: sbuf float32[128, 64] temp
  buffer %c: sbuf float32[128, 64] temp
  inputs %x
  outputs %y, %z
  body {
"""


def test_a_computed_tile_is_saved_and_reloaded():
    before = kernel(SPILL + """    dma_copy dst=%a src=%x engine=sync
    tensor_copy dst=%b src=%a engine=vector
    tensor_copy dst=%c src=%a engine=vector
    dma_copy dst=%y src=%c engine=sync
    dma_copy dst=%z src=%b engine=sync
  }""")
    placed = place(before, tiny_target(512))
    assert lines(placed.kernel) == [
        "dma_copy dst=%a src=%x engine=sync",
        "tensor_copy dst=%b src=%a engine=vector",
        'dma_copy dst=%b.spill[f0 | 64x128 1x64] as float32 src=%b engine=sync name="spill"',
        "tensor_copy dst=%c src=%a engine=vector",
        "dma_copy dst=%y src=%c engine=sync",
        'dma_copy dst=%b.1 src=%b.spill[f0 | 64x128 1x64] as float32 engine=sync name="reload"',
        "dma_copy dst=%z src=%b.1 engine=sync",
    ]
    assert placed.placements["b"] == placed.placements["c"]


def test_a_loaded_tile_is_loaded_again_instead():
    before = kernel(SPILL + """    dma_copy dst=%a src=%x engine=sync
    tensor_copy dst=%b src=%a engine=vector
    tensor_copy dst=%c src=%b engine=vector
    dma_copy dst=%y src=%c engine=sync
    dma_copy dst=%z src=%a engine=sync
  }""")
    assert lines(place(before, tiny_target(512)).kernel)[-2:] == [
        "dma_copy dst=%a.1 src=%x engine=sync",
        "dma_copy dst=%z src=%a.1 engine=sync",
    ]
    assert not any("spill" in line for line in lines(place(before, tiny_target(512)).kernel))


def test_a_copy_has_a_name_of_its_own():
    before = kernel((SPILL + """    dma_copy dst=%a src=%x engine=sync
    tensor_copy dst=%a.1 src=%a engine=vector
    tensor_copy dst=%c src=%a.1 engine=vector
    dma_copy dst=%y src=%c engine=sync
    dma_copy dst=%z src=%a engine=sync
  }""").replace("%b", "%a.1"))
    assert lines(place(before, tiny_target(512)).kernel)[-1] == "dma_copy dst=%z src=%a.2 engine=sync"


def test_only_what_was_written_is_saved():
    before = kernel(SPILL + """    dma_copy dst=%a[p0 f0 | 1x128 1x16] src=%x[f0 | 64x128 1x16] engine=sync
    tensor_copy dst=%b[p0 f0 | 1x128 1x16] src=%a[p0 f0 | 1x128 1x16] engine=vector
    tensor_copy dst=%b[p0 f16 | 1x128 1x16] src=%a[p0 f0 | 1x128 1x16] engine=vector
    tensor_copy dst=%c src=%a[p0 f0 | 1x128 0x4 1x16] engine=vector
    dma_copy dst=%y src=%c engine=sync
    dma_copy dst=%z[f0 | 64x128 1x32] src=%b[p0 f0 | 1x128 1x32] engine=sync
  }""")
    spills = [line for line in lines(place(before, tiny_target(512)).kernel) if "spill" in line]
    assert spills == [
        'dma_copy dst=%b.spill[f0 | 64x128 1x32] as float32 src=%b[p0 f0 | 1x128 1x32] engine=sync name="spill"',
        'dma_copy dst=%b.1[p0 f0 | 1x128 1x32] src=%b.spill[f0 | 64x128 1x32] as float32 engine=sync name="reload"',
    ]


def test_written_regions_join_into_rectangles():
    tile = Buffer("t", Space.SBUF, (128, 64), dt.bfloat16)

    def part(row, rows, column, columns, step=1):
        return AccessPattern(tile, column, ((1, rows), (step, columns)), dt.bfloat16, row)

    assert written_regions(tile, [part(0, 64, 0, 64), part(64, 64, 32, 32), part(64, 64, 0, 32)]) == [tile.all]
    assert written_regions(tile, [part(0, 128, 8, 8), part(0, 128, 16, 8)]) == [part(0, 128, 8, 16)]
    strided = part(0, 128, 1, 32, step=2)
    assert written_regions(tile, [strided, strided]) == [strided]
    byte = AccessPattern(tile, 3, ((1, 128), (1, 3)), dt.uint8)
    (saved,) = written_regions(tile, [byte])
    assert footprint(saved) == footprint(byte)


def test_sbuf_that_cannot_hold_one_instruction_is_an_error():
    before = kernel(SPILL + """    dma_copy dst=%a src=%x engine=sync
    tensor_copy dst=%b src=%a engine=vector
    dma_copy dst=%y src=%b engine=sync
    dma_copy dst=%z src=%b engine=sync
  }""")
    with pytest.raises(RanvierError) as caught:
        place(before, tiny_target(448))
    assert caught.value.code == "E0501"
    assert "256 of 448 bytes" in str(caught.value) and "a: 256 bytes per partition" in str(caught.value)


def test_psum_that_is_too_full_is_an_error_with_the_live_tiles():
    tiles = "\n".join(f"buffer %p{i}: psum float32[128, 512] temp" for i in range(9))
    operands = "stationary=%a[p0 f0 | 1x128 1x128] moving=%a accumulate=false"
    products = "\n".join(f"nc_matmul dst=%p{i} {operands}" for i in range(9))
    copies = "\n".join(f"tensor_copy dst=%a src=%p{i} engine=vector" for i in range(9))
    before = kernel(f"""buffer %x: hbm float32[128, 512] input
      buffer %y: hbm float32[128, 512] output
      buffer %a: sbuf float32[128, 512] temp
      {tiles}
      inputs %x
      outputs %y
      body {{
      dma_copy dst=%a src=%x engine=sync
      {products}
      {copies}
      dma_copy dst=%y src=%a engine=sync
      }}""")
    with pytest.raises(RanvierError) as caught:
        place(before, TRN2)
    assert caught.value.code == "E0501"
    assert "no room for p8 in psum" in str(caught.value) and "p0: 2048 bytes per partition" in str(caught.value)


def test_hbm_that_is_too_small_is_an_error():
    before = kernel(SPILL + """    dma_copy dst=%a src=%x engine=sync
    dma_copy dst=%y src=%a engine=sync
    dma_copy dst=%z src=%a engine=sync
  }""")
    reserved = int(TRN2.hbm.reserved_bytes.value)
    with pytest.raises(RanvierError) as caught:
        place(before, TRN2.replace("hbm.bytes", reserved + 65536))
    assert caught.value.code == "E0502" and "98304 bytes" in str(caught.value)
    assert place(before, TRN2.replace("hbm.bytes", reserved + 98304)).placements["z"].byte == 65536
