"""`ranvier demo`: a real model from PyTorch to a profile, with every number beside its reference."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from ranvier import config
from ranvier.cli.output import duration, print_json, progress
from ranvier.cli.spec import need_torch
from ranvier.console import console
from ranvier.errors import error

if TYPE_CHECKING:
    import torch

    from ranvier.profile import Profile
    from ranvier.runtime.executable import Executable


def demo(
    json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
    target: Annotated[str, typer.Option(help="a target that `ranvier targets` lists")] = "trn2",
    page: Annotated[Path, typer.Option(help="where the profile page is written")] = Path("minilm-profile.html"),
) -> None:
    """Compile all-MiniLM-L6-v2 with its real weights, run it on a simulated core, and compare it with PyTorch."""
    need_torch("the demonstration")
    from ranvier.frontends.torch import minilm

    with progress("loading all-MiniLM-L6-v2", quiet=json):
        model, inputs = minilm.minilm()
        expected = _run_torch(model, inputs)
    measured: dict[str, _Measured] = {}
    for dtype in ("bfloat16", "float32"):
        measured[dtype] = _measure(model, inputs, target, dtype, quiet=json)
    profile = measured["bfloat16"].exe.profile()
    profile.save_html(page)
    differences = {dtype: float((m.output - expected).abs().max()) for dtype, m in measured.items()}
    main = measured["bfloat16"]
    if json:
        print_json({
            "max_abs_diff": {"float32": differences["float32"], "bfloat16": differences["bfloat16"]},
            "compile_s": main.compile_s, "warm_compile_s": main.warm_compile_s, "run_s": main.run_s,
            "latency_us": profile.latency_ns / 1e3, "bound_us": profile.bound_ns / 1e3, "page": str(page),
        })
        return
    _print(minilm.SENTENCES, expected, measured, differences, profile, page)


class _Measured:
    """One compilation: cold and warm, and one run."""

    def __init__(self, exe: Executable, output: torch.Tensor, compile_s: float, warm_compile_s: float, run_s: float):
        self.exe, self.output = exe, output
        self.compile_s, self.warm_compile_s, self.run_s = compile_s, warm_compile_s, run_s


def _run_torch(model: Any, inputs: tuple[Any, ...]) -> torch.Tensor:
    import torch

    with torch.no_grad():
        return model(*inputs)


def _measure(model: Any, inputs: tuple[Any, ...], target: str, dtype: str, quiet: bool) -> _Measured:
    """Compile twice with a cache that is empty at first, then run."""
    from ranvier.frontends.compile import compile

    with (tempfile.TemporaryDirectory(prefix="ranvier-demo-") as folder,
          config.override(cache=True, cache_dir=folder, dump="")):
        with progress(f"compiling for {target} in {dtype}", quiet) as report:
            start = time.perf_counter()
            exe = compile(model, inputs, target=target, dtype=dtype, progress=report)
            compile_s = time.perf_counter() - start
        start = time.perf_counter()
        warm = compile(model, inputs, target=target, dtype=dtype)
        warm_compile_s = time.perf_counter() - start
        if warm.stages or not exe.stages:
            raise error("E0901", "the second compilation of the demonstration did not come from the cache")
    with progress(f"running on a simulated {exe.target.title} core in {dtype}", quiet):
        start = time.perf_counter()
        output = exe(*inputs)
        run_s = time.perf_counter() - start
    return _Measured(exe, output, compile_s, warm_compile_s, run_s)


def _print(sentences: tuple[str, ...], expected: torch.Tensor, measured: dict[str, _Measured],
           differences: dict[str, float], profile: Profile, page: Path) -> None:
    terminal = console()
    main = measured["bfloat16"]
    terminal.print("Similarity of the sentences, from the simulated core in bfloat16", style="bold")
    ours, theirs = main.output @ main.output.T, expected @ expected.T
    for i, sentence in enumerate(sentences):
        terminal.print(f"  {i + 1}. {sentence}", highlight=False)
    for i in range(len(sentences)):
        cells = " ".join(f"{ours[i, j]:5.2f}" for j in range(i + 1))
        terminal.print(f"  {i + 1}. {cells}", highlight=False)
    largest = float((ours - theirs).abs().max())
    terminal.print(f"  largest difference from PyTorch in float32: {largest:.2g}\n", highlight=False)
    terminal.print(f"all-MiniLM-L6-v2, batch 8 x 128 tokens, one core of {main.exe.target.title}", style="bold")
    numbers = Table()
    numbers.add_column("")
    for dtype in measured:
        numbers.add_column(dtype, justify="right")
    rows = {
        "largest difference from PyTorch": [f"{differences[d]:.2g}" for d in measured],
        "instructions": [str(sum(len(s.slots) for s in m.exe.program.streams)) for m in measured.values()],
        "compile, nothing cached": [f"{m.compile_s:.2f} s" for m in measured.values()],
        "compile again": [f"{m.warm_compile_s:.2f} s" for m in measured.values()],
        "run on this machine": [f"{m.run_s:.2f} s" for m in measured.values()],
        "predicted latency": [duration(m.exe.profile().latency_ns) for m in measured.values()],
        "roofline bound": [duration(m.exe.profile().bound_ns) for m in measured.values()],
    }
    for name, cells in rows.items():
        numbers.add_row(name, *cells)
    terminal.print(numbers)
    terminal.print(profile.report(rows=6))
    terminal.print(f"profile page: {page.resolve()}", soft_wrap=True, highlight=False)
