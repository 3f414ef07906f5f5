"""Choose an engine for every instruction that leaves it open."""

from __future__ import annotations

import dataclasses

from ranvier.compiler.kernel.costs import Costs
from ranvier.ir.kernel import Kernel
from ranvier.isa.record import Instruction
from ranvier.target.spec import Engine

WINDOW_NS = 20_000.0
"""How far one engine may fall behind the busiest before what it has saved up is forgotten. Balance matters among
instructions that could run at the same time, and those are near each other in the program."""


def assign_engines(kernel: Kernel, costs: Costs) -> Kernel:
    """The kernel with an engine in each instruction that has the field, so that busy times are balanced.

    In program order, each instruction goes to the legal engine that would be done with it first, counting the busy
    times given out so far. Data movements are triggered by the sync engine, which does nothing else, where it may.
    """
    loads = dict.fromkeys(Engine, 0.0)
    busiest = 0.0
    target = costs.target
    body: list[Instruction] = []
    for inst in kernel.body:
        asked = getattr(inst, "engine", None)
        if asked is Engine.UNKNOWN:
            legal = inst.legal_engines(target)
            if inst.IS_DMA:
                engine = Engine.SYNC if Engine.SYNC in legal else legal[0]
            elif len(legal) == 1:
                engine = legal[0]
            else:
                floor = busiest - WINDOW_NS
                engine = min(legal, key=lambda e: max(loads[e], floor) + costs.of(inst, e).busy.ns)
            inst = dataclasses.replace(inst, engine=engine)  # type: ignore[call-arg]
        else:
            engine = inst.engine_on(target)
        load = loads[engine] = max(loads[engine], busiest - WINDOW_NS) + costs.of(inst, engine).busy.ns
        busiest = max(busiest, load)
        body.append(inst)
    return dataclasses.replace(kernel, body=tuple(body))
