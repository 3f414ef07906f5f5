"""Normalizations over the free dimension of a tile."""

from __future__ import annotations

from ranvier.kernels.matmul import spans
from ranvier.kernels.sizes import STATISTICS_COLUMNS
from ranvier.nki import isa as nisa
from ranvier.nki import language as nl
from ranvier.nki.tensor import NkiTensor


def inverse_root(dst: NkiTensor, data: NkiTensor, epsilon: float) -> None:
    """dst = 1 / sqrt(data + epsilon) for [P, 1] float32 tiles.

    On gpsimd, since a square root on the scalar engine would evict the activation table that the neighbours use.
    """
    nisa.tensor_scalar(
        dst=dst, data=data, op0=nl.add, operand0=epsilon, op1=nl.rsqrt, operand1=0.0, engine=nisa.engine.gpsimd
    )


def layer_norm(
    dst: NkiTensor, data: NkiTensor, weight: NkiTensor | None, bias: NkiTensor | None, epsilon: float
) -> None:
    """dst = (data - mean) / sqrt(variance + epsilon) * weight + bias over the free dimension of [P, N] tiles.

    `weight` and `bias` are tiles with the same row in every partition, [P, N] or None.
    """
    partitions, size = data.shape
    pieces = spans(size, STATISTICS_COLUMNS)
    statistics = nl.ndarray((partitions, len(pieces), 6), dtype=nl.float32, buffer=nl.sbuf)
    for i, (start, length) in enumerate(pieces):
        nisa.bn_stats(dst=statistics[:, i, :], data=data[:, start : start + length])
    moments = nl.ndarray((partitions, 2), dtype=nl.float32, buffer=nl.sbuf)
    nisa.bn_aggr(dst=moments, data=statistics)
    scale = nl.ndarray((partitions, 1), dtype=nl.float32, buffer=nl.sbuf)
    inverse_root(scale, moments[:, 1:2], epsilon)
    last = weight is None and bias is None
    normal = dst if last else nl.ndarray((partitions, size), dtype=dst.dtype, buffer=nl.sbuf)
    nisa.tensor_scalar(
        dst=normal, data=data, op0=nl.subtract, operand0=moments[:, 0:1], op1=nl.multiply, operand1=scale
    )
    if weight is not None:
        scaled = dst if bias is None else nl.ndarray((partitions, size), dtype=dst.dtype, buffer=nl.sbuf)
        nisa.tensor_tensor(dst=scaled, data1=normal, data2=weight, op=nl.multiply)
        normal = scaled
    if bias is not None:
        nisa.tensor_tensor(dst=dst, data1=normal, data2=bias, op=nl.add)


def rms_norm(dst: NkiTensor, data: NkiTensor, weight: NkiTensor | None, epsilon: float) -> None:
    """dst = data / sqrt(mean(data^2) + epsilon) * weight over the free dimension of [P, N] tiles."""
    partitions, size = data.shape
    squares = nl.ndarray((partitions, size), dtype=data.dtype, buffer=nl.sbuf)
    mean = nl.ndarray((partitions, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.activation_reduce(
        dst=squares, op=nl.square, data=data, reduce_op=nl.add, reduce_res=mean, scale=float(size) ** -0.5
    )
    scale = nl.ndarray((partitions, 1), dtype=nl.float32, buffer=nl.sbuf)
    inverse_root(scale, mean, epsilon)
    if weight is None:
        nisa.tensor_scalar(dst=dst, data=data, op0=nl.multiply, operand0=scale)
    else:
        nisa.scalar_tensor_tensor(
            dst=dst, data=data, op0=nl.multiply, operand0=scale, op1=nl.multiply, operand1=weight
        )


def _powers(data: NkiTensor) -> tuple[NkiTensor, NkiTensor, NkiTensor]:
    """float32 tiles: exp(data - max) [P, N], its sums [P, 1], and -max [P, 1] over the free dimension."""
    partitions, size = data.shape
    negative_max = nl.ndarray((partitions, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_reduce(dst=negative_max, op=nl.maximum, data=data, axis=1, negate=True)
    powers = nl.ndarray((partitions, size), dtype=nl.float32, buffer=nl.sbuf)
    total = nl.ndarray((partitions, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.activation_reduce(dst=powers, op=nl.exp, data=data, reduce_op=nl.add, reduce_res=total, bias=negative_max)
    return powers, total, negative_max


def softmax(dst: NkiTensor, data: NkiTensor) -> None:
    """dst = exp(data - max) / sum over the free dimension of [P, N] tiles; float32 inside."""
    powers, total, _ = _powers(data)
    inverse = nl.ndarray(total.shape, dtype=nl.float32, buffer=nl.sbuf)
    nisa.reciprocal(dst=inverse, data=total)
    nisa.tensor_scalar(dst=dst, data=powers, op0=nl.multiply, operand0=inverse)


def log_softmax(dst: NkiTensor, data: NkiTensor) -> None:
    """dst = data - max - log(sum(exp(data - max))) over the free dimension of [P, N] tiles; float32 inside."""
    _, total, negative_max = _powers(data)
    logarithm = nl.ndarray(total.shape, dtype=nl.float32, buffer=nl.sbuf)
    nisa.activation(dst=logarithm, op=nl.log, data=total)
    nisa.tensor_scalar(
        dst=dst, data=data, op0=nl.add, operand0=negative_max, op1=nl.subtract, operand1=logarithm
    )
