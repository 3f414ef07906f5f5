"""Rules that hold for the partitions of every operand on chip."""

import pytest

from ranvier import dtypes as dt
from ranvier.errors import NkiValidationError
from ranvier.isa.access import AccessPattern, Buffer, Space
from ranvier.isa.record import verify
from ranvier.isa.vector import TensorCopy
from ranvier.target import get


def rows(partition: int, count: int) -> AccessPattern:
    buffer = Buffer("t", Space.SBUF, (max(128, partition + count), 4), dt.float32)
    return AccessPattern(buffer, 0, ((1, count), (1, 4)), dt.float32, partition)


@pytest.mark.parametrize("partition, count, code", [
    (0, 129, "E0302"), (0, 128, None), (64, 64, None), (32, 64, "E0303"), (32, 32, None), (96, 32, None),
    (16, 8, "E0303"),
])
def test_partitions_of_an_operand(partition, count, code):
    inst = TensorCopy(dst=rows(partition, count), src=rows(partition, count))
    if code is None:
        verify(inst, get("trn2"))
        return
    with pytest.raises(NkiValidationError) as caught:
        verify(inst, get("trn2"))
    assert caught.value.code == code
    assert str(count if code == "E0302" else partition) in caught.value.message
