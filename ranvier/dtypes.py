"""Data types: the one place where dtypes are described and where casts and rounding happen.

Rules (NKI documentation, data types): arithmetic is float32; a store rounds to nearest even; float to integer rounds to
nearest even and saturates; `float8_e4m3` is the legacy format (largest value 240) in which larger values become NaN.
"""

from __future__ import annotations

from dataclasses import dataclass

import ml_dtypes
import numpy as np

from ranvier.errors import error


@dataclass(frozen=True, slots=True, eq=False)
class DType:
    """One data type. `np` is its numpy dtype, `kind` one of "float", "int", "uint", "bool".

    There is one object per dtype; it also equals its name, as kernels compare ``x.dtype == "float32"``.
    """

    name: str
    np: np.dtype
    kind: str
    itemsize: int
    on_device: bool = True

    def __repr__(self) -> str:
        return self.name

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, str) and other == self.name)

    def __hash__(self) -> int:
        return hash(self.name)

    def __reduce__(self):
        return (dtype, (self.name,))

    @property
    def is_float(self) -> bool:
        return self.kind == "float"

    @property
    def is_integer(self) -> bool:
        return self.kind in ("int", "uint")


def _make(name: str, np_dtype, kind: str, on_device: bool = True) -> DType:
    numpy_dtype = np.dtype(np_dtype)
    return DType(name, numpy_dtype, kind, numpy_dtype.itemsize, on_device)


float32 = _make("float32", np.float32, "float")
bfloat16 = _make("bfloat16", ml_dtypes.bfloat16, "float")
float16 = _make("float16", np.float16, "float")
float8_e4m3 = _make("float8_e4m3", ml_dtypes.float8_e4m3, "float")
float8_e4m3fn = _make("float8_e4m3fn", ml_dtypes.float8_e4m3fn, "float")
float8_e5m2 = _make("float8_e5m2", ml_dtypes.float8_e5m2, "float")
int8 = _make("int8", np.int8, "int")
int16 = _make("int16", np.int16, "int")
int32 = _make("int32", np.int32, "int")
uint8 = _make("uint8", np.uint8, "uint")
uint16 = _make("uint16", np.uint16, "uint")
uint32 = _make("uint32", np.uint32, "uint")
bool_ = _make("bool", np.bool_, "bool")
# Known to graphs only; the core has no such types (64-bit integers are narrowed, float64 is refused).
int64 = _make("int64", np.int64, "int", on_device=False)
float64 = _make("float64", np.float64, "float", on_device=False)

DTYPES: dict[str, DType] = {
    d.name: d
    for d in (float32, bfloat16, float16, float8_e4m3, float8_e4m3fn, float8_e5m2, int8, int16, int32, uint8, uint16,
              uint32, bool_, int64, float64)
}
_BY_NUMPY = {d.np: d for d in DTYPES.values()}


def dtype(what: object) -> DType:
    """The `DType` for a name, a numpy dtype or scalar type, or a `DType`. Raises E0305 for anything else."""
    if isinstance(what, DType):
        return what
    if isinstance(what, str) and what in DTYPES:
        return DTYPES[what]
    if what == "bool_":
        return bool_
    try:
        if what is not None:  # which is float64 to numpy
            return _BY_NUMPY[np.dtype(what)]  # type: ignore[arg-type]
    except (TypeError, KeyError):
        pass
    known = ", ".join(name for name, each in DTYPES.items() if each.on_device)
    raise error("E0305", f"{what!r} is not a dtype", fix=f"use one of {known}")


def _saturate(values: np.ndarray, to: DType) -> np.ndarray:
    info = np.iinfo(to.np)
    with np.errstate(invalid="ignore"):
        rounded = np.rint(values.astype(np.float64))
        clipped = np.clip(rounded, float(info.min), float(info.max))
        return np.where(np.isnan(clipped), 0, clipped).astype(to.np)


def cast(values: np.ndarray, to: DType) -> np.ndarray:
    """`values` in dtype `to` with the hardware's rules: through float32, round to nearest even, integers saturate.

    Integers convert to integers exactly or saturate, without a detour through float32; NaN to integer gives 0. float64
    takes all values as they are. The result may share memory with `values` when nothing changes.
    """
    if values.dtype == to.np:
        return values
    source = values.dtype
    if to.kind == "bool":
        return values != 0
    if to.is_integer:
        if source.kind == "b" or (source.kind in "iu" and np.can_cast(source, to.np)):
            return values.astype(to.np)
        if source.kind in "iu":
            info = np.iinfo(to.np)
            return np.clip(values, info.min, info.max).astype(to.np)
        return _saturate(values, to)
    if to is float64:
        return values.astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        if source != np.float32:
            values = values.astype(np.float32)
        if to is float32:
            return values
        result = values.astype(to.np)
    if to is float8_e4m3:  # the legacy format has no infinity: what overflows becomes NaN
        result[np.isinf(result)] = np.nan
    return result


def compute(values: np.ndarray) -> np.ndarray:
    """`values` as float32, the type of all arithmetic in the engines. Shares memory with a float32 input."""
    return values if values.dtype == np.float32 else values.astype(np.float32)


POISON_BYTE = 0xFF
"""Fresh memory is filled with this byte: NaN in every float format, all bits set in integers."""
COMPUTE_DTYPES = ("bfloat16", "float32")
"""Names of the dtypes that a model can be computed in."""
