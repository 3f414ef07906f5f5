"""What two engines of a core cannot use at the same time."""

from __future__ import annotations

from collections.abc import Sequence

from ranvier.ir.program import Program
from ranvier.isa.access import AccessPattern, Space
from ranvier.target.spec import Engine, Target

_SBUF, _PSUM = -1, -2  # a memory as a whole; other names are numbers of PSUM banks


class Ports:
    """Memory ports and PSUM banks that the engines of one core share, and until when they are in use.

    On generations without the feature vector_gpsimd_parallel_sbuf, vector and gpsimd reach SBUF one at a time; without
    vector_scalar_parallel_psum the same holds for vector and scalar and PSUM, and with it for each PSUM bank.
    """

    def __init__(self, program: Program, target: Target):
        self._placed = program.placed
        self._bank_bytes = int(target.psum.bank_bytes.value)
        self._parallel_psum = target.has("vector_scalar_parallel_psum")
        self._parallel_sbuf = target.has("vector_gpsimd_parallel_sbuf")
        self._taken: dict[int, tuple[float, int]] = {}

    def needs(self, engine: Engine, accesses: Sequence[AccessPattern]) -> list[int]:
        """What an instruction with these accesses must have for itself on `engine`."""
        found: list[int] = []
        if engine is Engine.VECTOR or engine is Engine.SCALAR:
            for ap in accesses:
                if ap.buffer.space is Space.PSUM:
                    found += [bank for bank in self._banks(ap) if bank not in found]
        shares_sbuf = engine is Engine.VECTOR or engine is Engine.GPSIMD
        if shares_sbuf and not self._parallel_sbuf and any(ap.buffer.space is Space.SBUF for ap in accesses):
            found.append(_SBUF)
        return found

    def _banks(self, ap: AccessPattern) -> Sequence[int]:
        if not self._parallel_psum:
            return (_PSUM,)
        low, high = ap.extent
        byte = self._placed[ap.buffer.name].byte
        return range((byte + low) // self._bank_bytes, (byte + high - 1) // self._bank_bytes + 1)

    def free(self, needs: Sequence[int]) -> tuple[float, int]:
        """When all that is needed is free, and the event that lets go of it last (-1 if nothing has used it)."""
        return max((self._taken.get(name, (0.0, -1)) for name in needs), default=(0.0, -1))

    def take(self, needs: Sequence[int], until: float, event: int) -> None:
        """Use what is needed, which is free, until then."""
        for name in needs:
            self._taken[name] = until, event
