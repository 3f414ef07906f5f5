"""Matrix products: matmul, and the feed-forward block of a transformer."""

from __future__ import annotations

import math

import numpy as np
from scipy import special

from ranvier import nki
from ranvier.kernels.library.arguments import expect, expect_shape, replicated, rows_of, wide
from ranvier.kernels.matmul import accumulate, spans
from ranvier.kernels.sizes import MOVING_COLUMNS, PARTITIONS, STATIONARY_COLUMNS
from ranvier.nki import isa as nisa
from ranvier.nki import language as nl
from ranvier.nki.tensor import NkiTensor

ROW_BYTES = 2048
"""Bytes of a row of a block: as much as a DMA engine moves in one burst."""
BLOCK_COLUMNS = 1024
"""Most columns of a block. Two blocks multiply for 2.6 times as long as they load, so each may be loaded per use."""
K_TILES = 16
"""Tiles of 128 rows in a block: two blocks take 64 KiB per partition, and leave room for sums over further rows."""
TILES_AHEAD = 2
"""Tiles of the next block that load while the block before is in use."""


@nki.jit
def matmul(lhs_t, rhs, dtype=None):
    """lhs_t^T x rhs for HBM tensors lhs_t [K, M] and rhs [K, N]; the result is [M, N].

    Any sizes. Both operands have the same dtype, float32, or both are of 16 and 8 bits (bfloat16, float16, float8). The
    result has `dtype`, by default that of lhs_t. Products and sums are float32; the sum is rounded once, to the dtype
    of the result.

    Blocks [2048, 1024] of both operands (float32: [2048, 512]) are on chip at a time, and the next ones load meanwhile.
    A block that the next step uses again stays. Sums over K run in PSUM for 2048 rows; beyond that they are added up in
    SBUF, in float32. Where M is small and N is large, matmul(rhs, lhs_t) gives the transposed result sooner: a pass
    over the moving columns costs the same for 1 and for 128 stationary ones.
    """
    shapes = f"lhs_t has shape {lhs_t.shape}, rhs {rhs.shape}"
    expect(len(lhs_t.shape) == len(rhs.shape) == 2, "lhs_t", f"{shapes}; both have two dimensions")
    expect(lhs_t.shape[0] == rhs.shape[0], "rhs", f"{shapes}; their first dimensions are equal")
    (k_size, m_size), n_size = lhs_t.shape, rhs.shape[1]
    out = nl.ndarray((m_size, n_size), dtype=dtype or lhs_t.dtype, buffer=nl.shared_hbm)
    stationary, moving = _Blocks(lhs_t), _Blocks(rhs)
    k_blocks = spans(k_size, K_TILES * PARTITIONS)
    n_blocks = spans(n_size, moving.columns)
    for m0, m in spans(m_size, stationary.columns):
        for n0, n in n_blocks:
            totals: dict[tuple[int, int], NkiTensor] = {}
            for i, (k0, k) in enumerate(k_blocks):
                left, right = stationary.block(k0, k, m0, m), moving.block(k0, k, n0, n)
                is_last = i == len(k_blocks) - 1
                _block_product(out[m0 : m0 + m, n0 : n0 + n], left, right, totals, is_last)
            k_blocks = k_blocks[::-1]  # begin with the block of lhs_t that is there
        n_blocks = n_blocks[::-1]
    return out


def matmul_reference(lhs_t: np.ndarray, rhs: np.ndarray) -> np.ndarray:
    """lhs_t^T x rhs in float64."""
    return wide(lhs_t).T @ wide(rhs)


class _Blocks:
    """A matrix [K, C] in HBM, of which one block of rows and columns is on chip.

    Tiles are reused in turn, and there are only a few more than a block has. So the loads of the next block cannot get
    in the way of the block at hand, whose product must wait for the last of its own; and that few are enough, since
    products of a new block, on all PSUM banks at once, begin with any tile that is there and take longer than the next
    one's load.
    """

    def __init__(self, matrix: NkiTensor):
        self.matrix = matrix
        self.columns = min(BLOCK_COLUMNS, max(MOVING_COLUMNS, ROW_BYTES // matrix.dtype.itemsize))
        self.at: tuple[int, int] | None = None
        self.tiles: list[NkiTensor] = []
        k_size, c_size = matrix.shape
        shape = min(k_size, PARTITIONS), min(c_size, self.columns)
        count = min(math.ceil(k_size / PARTITIONS), K_TILES) + TILES_AHEAD
        self.ring = [nl.ndarray(shape, dtype=matrix.dtype, buffer=nl.sbuf) for _ in range(count)]
        self.loaded = 0

    def block(self, k0: int, k: int, c0: int, c: int) -> list[NkiTensor]:
        """Tiles [<= 128, c] of rows k0 .. k0 + k and columns c0 .. c0 + c."""
        if self.at != (k0, c0):
            self.at, self.tiles = (k0, c0), []
            for start, rows in spans(k, PARTITIONS):
                tile = self.ring[self.loaded % len(self.ring)][:rows, :c]
                nisa.dma_copy(dst=tile, src=self.matrix[k0 + start : k0 + start + rows, c0 : c0 + c])
                self.tiles.append(tile)
                self.loaded += 1
        return self.tiles


def _block_product(
    out: NkiTensor, stationary: list[NkiTensor], moving: list[NkiTensor], totals: dict[tuple[int, int], NkiTensor],
    last: bool,
) -> None:  # fmt: skip
    """Add the product of two blocks to `totals`, by position in `out`; the last one goes to `out`."""
    m_size, n_size = out.shape
    for m0, m in spans(m_size, STATIONARY_COLUMNS):
        result = nl.ndarray((m, n_size), dtype=out.dtype, buffer=nl.sbuf) if last else None
        for n0, n in spans(n_size, MOVING_COLUMNS):
            product = nl.ndarray((m, n), dtype=nl.float32, buffer=nl.psum)
            accumulate(product, [s[:, m0 : m0 + m] for s in stationary], [t[:, n0 : n0 + n] for t in moving])
            total = totals.get((m0, n0))
            if result is not None:
                dst = result[:, n0 : n0 + n]
            else:
                dst = totals[m0, n0] = nl.ndarray((m, n), dtype=nl.float32, buffer=nl.sbuf)
            if total is None:
                nisa.tensor_copy(dst=dst, src=product)
            else:
                nisa.tensor_tensor(dst=dst, data1=product, data2=total, op=nl.add)
        if result is not None:
            nisa.dma_copy(dst=out[m0 : m0 + m, :], src=result)


# Feed-forward block ---------------------------------------------------------------------------------------------------

TOKENS = 512
"""Most rows of x that are worked on at once: as many columns as move through the tensor engine in one instruction."""
ACTIVATION_BYTES = 96 * 1024
"""Bytes per partition that the transposed rows of x and their hidden values may take on chip."""

_ACTIVATIONS = {
    "gelu": lambda x: 0.5 * x * (1.0 + special.erf(x / math.sqrt(2.0))),
    "gelu_apprx_tanh": lambda x: 0.5 * x * (1.0 + np.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3))),
    "silu": lambda x: x / (1.0 + np.exp(-x)),
    "relu": lambda x: np.maximum(x, 0.0),
}


@nki.jit
def mlp(x, w_up, w_down, b_up=None, b_down=None, w_gate=None, activation="gelu"):
    """act(x w_up + b_up) w_down + b_down for x [..., H], w_up [H, F], w_down [F, G]; the result is [..., G].

    With `w_gate` [H, F] it is (act(x w_gate) * (x w_up + b_up)) w_down + b_down. `activation` is gelu, gelu_apprx_tanh,
    silu or relu; biases are [F] and [G]. Any sizes; x and the weights have the same dtype, float32 or one of 16 bits,
    and so has the result. Sums, biases and the activation are float32. Rounded to the dtype of x are the hidden values,
    the values of the gate, and the result.

    Up to 512 rows of x are worked on at once, with the hidden values on chip; all weights are loaded once for each such
    group of rows. The hidden values of 128 rows must fit in 96 KiB per partition beside x, which bounds H + F by about
    49,000 elements of 16 bits.
    """
    rows = rows_of(x)
    (t_size, h_size), f_size, g_size = rows.shape, w_up.shape[1], w_down.shape[1]
    known = ", ".join(_ACTIVATIONS)
    expect(activation in _ACTIVATIONS, "activation", f"activation is {activation!r}; known are {known}")
    expect_shape("w_up", w_up, (h_size, f_size))
    expect_shape("w_gate", w_gate, (h_size, f_size))
    expect_shape("w_down", w_down, (f_size, g_size))
    expect_shape("b_up", b_up, (f_size,))
    expect_shape("b_down", b_down, (g_size,))
    out = nl.ndarray((*x.shape[:-1], g_size), dtype=x.dtype, buffer=nl.shared_hbm)
    result = rows_of(out)
    shift = replicated(b_down, min(PARTITIONS, t_size))
    per_token = (math.ceil(h_size / PARTITIONS) + math.ceil(f_size / PARTITIONS)) * x.dtype.itemsize
    tokens = max(PARTITIONS, min(TOKENS, ACTIVATION_BYTES // per_token // PARTITIONS * PARTITIONS))
    for t0, t in spans(t_size, tokens):
        turned = transposed_rows(rows[t0 : t0 + t, :])
        hidden = _hidden(turned, w_up, w_gate, b_up, activation)
        _down(result[t0 : t0 + t, :], hidden, w_down, shift)
    return out


def mlp_reference(
    x: np.ndarray, w_up: np.ndarray, w_down: np.ndarray, b_up: np.ndarray | None = None,
    b_down: np.ndarray | None = None, w_gate: np.ndarray | None = None, activation: str = "gelu",
) -> np.ndarray:  # fmt: skip
    """The same in float64, rounded nowhere."""
    act, data = _ACTIVATIONS[activation], wide(x)
    up = data @ wide(w_up) + (0.0 if b_up is None else wide(b_up))
    hidden = act(up) if w_gate is None else act(data @ wide(w_gate)) * up
    return hidden @ wide(w_down) + (0.0 if b_down is None else wide(b_down))


def transposed_rows(rows: NkiTensor) -> list[NkiTensor]:
    """Rows [T <= 512, H] in HBM as tiles [<= 128, T] on chip, H on partitions."""
    t_size, h_size = rows.shape
    parts = [(t0, t, nl.load(rows[t0 : t0 + t, :])) for t0, t in spans(t_size, PARTITIONS)]
    tiles = []
    for h0, h in spans(h_size, PARTITIONS):
        turned = nl.ndarray((h, t_size), dtype=rows.dtype, buffer=nl.psum)
        for t0, t, part in parts:
            nisa.nc_transpose(dst=turned[:, t0 : t0 + t], data=part[:, h0 : h0 + h])
        tiles.append(nl.ndarray((h, t_size), dtype=rows.dtype, buffer=nl.sbuf))
        nisa.tensor_copy(dst=tiles[-1], src=turned)
    return tiles


def _hidden(
    x_t: list[NkiTensor], w_up: NkiTensor, w_gate: NkiTensor | None, b_up: NkiTensor | None, activation: str
) -> list[NkiTensor]:
    """Hidden values as tiles [<= 128, T], F on partitions."""
    t_size, tiles = x_t[0].shape[1], []
    for b0, b in spans(w_up.shape[1], MOVING_COLUMNS):
        up = _columns(w_up, b0, b)
        gate = None if w_gate is None else _columns(w_gate, b0, b)
        for f0, f in spans(b, STATIONARY_COLUMNS):
            shift = None
            if b_up is not None:
                shift = nl.load(b_up[b0 + f0 : b0 + f0 + f].reshape((f, 1)))
            product = nl.ndarray((f, t_size), dtype=nl.float32, buffer=nl.psum)
            accumulate(product, [w[:, f0 : f0 + f] for w in up], x_t)
            tile = nl.ndarray((f, t_size), dtype=x_t[0].dtype, buffer=nl.sbuf)
            tiles.append(tile)
            if gate is None:
                nisa.activation(dst=tile, op=activation, data=product, bias=shift)
                continue
            gates = nl.ndarray((f, t_size), dtype=nl.float32, buffer=nl.psum)
            accumulate(gates, [w[:, f0 : f0 + f] for w in gate], x_t)
            factor = nl.ndarray((f, t_size), dtype=x_t[0].dtype, buffer=nl.sbuf)
            nisa.activation(dst=factor, op=activation, data=gates)
            if shift is None:
                nisa.tensor_tensor(dst=tile, data1=product, data2=factor, op=nl.multiply)
            else:
                if shift.dtype is not nl.float32:
                    shift = nl.copy(shift, dtype=nl.float32)
                nisa.scalar_tensor_tensor(
                    dst=tile, data=product, op0=nl.add, operand0=shift, op1=nl.multiply, operand1=factor
                )
    return tiles


def _columns(matrix: NkiTensor, c0: int, c: int) -> list[NkiTensor]:
    return [nl.load(matrix[k0 : k0 + k, c0 : c0 + c]) for k0, k in spans(matrix.shape[0], PARTITIONS)]


def _down(out: NkiTensor, hidden: list[NkiTensor], w_down: NkiTensor, shift: NkiTensor | None) -> None:
    """out [T, G] = hidden^T w_down + shift. Each weight is used for all T rows when it arrives, and then no more."""
    t_size, g_size = out.shape
    parts = spans(t_size, PARTITIONS)
    for g0, g in spans(g_size, MOVING_COLUMNS):
        products = [nl.ndarray((t, g), dtype=nl.float32, buffer=nl.psum) for _, t in parts]
        for i, tile in enumerate(hidden):
            f0 = i * PARTITIONS
            weights = nl.load(w_down[f0 : f0 + tile.shape[0], g0 : g0 + g])
            for (t0, t), product in zip(parts, products, strict=True):
                accumulate(product, [tile[:, t0 : t0 + t]], [weights], first=i == 0)
        for (t0, t), product in zip(parts, products, strict=True):
            result = nl.ndarray((t, g), dtype=out.dtype, buffer=nl.sbuf)
            if shift is None:
                nisa.tensor_copy(dst=result, src=product)
            else:
                nisa.tensor_tensor(dst=result, data1=product, data2=shift[:t, g0 : g0 + g], op=nl.add)
            nisa.dma_copy(dst=out[t0 : t0 + t, g0 : g0 + g], src=result)
