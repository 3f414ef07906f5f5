"""The generated functions of `nki.isa`: signatures as NKI 0.6 documents them, calls that do not fit, handles."""

import enum
import inspect

import numpy as np
import pytest

from ranvier import config, nki, target
from ranvier.errors import MissingFact, NkiValidationError, RanvierError, Unsupported
from ranvier.isa import REGISTRY
from ranvier.isa.access import Space
from ranvier.nki import isa as nisa
from ranvier.nki import language as nl
from ranvier.nki.builder import EagerBuilder, RecordingBuilder

TRN2 = target.get("trn2")

# Names, order and defaults of parameters (NKI 0.6, nki.isa). The default of on_false_value is not printed there.
SIGNATURES = {
    "activate2": "dst, op, data, imm0, imm1, op0, op1, relu_param=0.0, reverse0=False, reverse1=False, reduce_op=None, "
                 "reduce_res=None, reduce_cmd=reduce_cmd.idle, name=None",
    "activation": "dst, op, data, bias=None, scale=1.0, reduce_op=None, reduce_res=None, reduce_cmd=reduce_cmd.idle, "
                  "name=None",
    "activation_reduce": "dst, op, data, reduce_op, reduce_res, bias=None, scale=1.0, name=None",
    "affine_select": "dst, pattern, channel_multiplier, on_true_tile, on_false_value, cmp_op=equal, offset=0, "
                     "name=None",
    "bn_aggr": "dst, data, name=None",
    "bn_stats": "dst, data, name=None",
    "dma_compute": "dst, srcs, reduce_op, scales=None, unique_indices=True, oob_mode=oob_mode.error, name=None",
    "dma_copy": "dst, src, priority=None, oob_mode=oob_mode.error, dge_mode=dge_mode.unknown, "
                "engine=engine.unknown, name=None",
    "dma_transpose": "dst, src, axes=None, priority=None, dge_mode=dge_mode.unknown, oob_mode=oob_mode.error, "
                     "name=None",
    "dropout": "dst, data, prob, name=None",
    "exponential": "dst, src, max_value=0.0, reduce_res=None, reduce_cmd=reduce_cmd.idle, reduce_init=0.0, name=None",
    "iota": "dst, pattern, offset=0, channel_multiplier=0, name=None",
    "local_gather": "dst, src_buffer, index, num_elem_per_idx=1, num_valid_indices=None, name=None",
    "max8": "dst, src, name=None",
    "memset": "dst, value, engine=engine.unknown, name=None",
    "nc_find_index8": "dst, data, vals, name=None",
    "nc_match_replace8": "dst, data, vals, imm, dst_idx=None, name=None",
    "nc_matmul": "dst, stationary, moving, is_stationary_onezero=False, is_moving_onezero=False, is_transpose=False, "
                 "accumulate=None, tile_position=(), tile_size=(), perf_mode=matmul_perf_mode.none, name=None",
    "nc_n_gather": "dst, data, indices, name=None",
    "nc_stream_shuffle": "dst, src, shuffle_mask, name=None",
    "nc_transpose": "dst, data, engine=engine.unknown, name=None",
    "nonzero_with_count": "dst, src, index_offset=0, padding_val=-1, name=None",
    "quantize_mx": "dst, src, dst_scale, name=None",
    "rand2": "dst, min, max, name=None",
    "rand_get_state": "dst, engine=engine.gpsimd, name=None",
    "rand_set_state": "src_seeds, engine=engine.gpsimd, name=None",
    "range_select": "dst, on_true_tile, comp_op0, comp_op1, bound0, bound1, reduce_cmd=reduce_cmd.reset_reduce, "
                    "reduce_res=None, reduce_op=maximum, range_start=0, on_false_value=-3.4028234663852886e+38, "
                    "name=None",
    "reciprocal": "dst, data, name=None",
    "rng": "dst, engine=engine.vector, name=None",
    "scalar_tensor_tensor": "dst, data, op0, operand0, op1, operand1, reverse0=False, reverse1=False, name=None",
    "select_reduce": "dst, predicate, on_true, on_false, reduce_res=None, reduce_cmd=reduce_cmd.idle, "
                     "reduce_op=maximum, reverse_pred=False, name=None",
    "sequence_bounds": "dst, segment_ids, name=None",
    "set_rng_seed": "src_seeds, name=None",
    "tensor_copy": "dst, src, engine=engine.unknown, name=None",
    "tensor_copy_predicated": "dst, src, predicate, reverse_pred=False, name=None",
    "tensor_partition_reduce": "dst, op, data, name=None",
    "tensor_reduce": "dst, op, data, axis, negate=False, keepdims=False, name=None",
    "tensor_scalar": "dst, data, op0, operand0, reverse0=False, op1=None, operand1=None, reverse1=False, "
                     "engine=engine.unknown, name=None",
    "tensor_scalar_cumulative": "dst, src, op0, op1, imm0, imm1=None, reduce_cmd=reduce_cmd.reset_reduce, name=None",
    "tensor_scalar_reduce": "dst, data, op0, operand0, reduce_op, reduce_res=None, reverse0=False, "
                            "reduce_cmd=reduce_cmd.reset_reduce, reduce_init=None, reduce_res_negate=False, name=None",
    "tensor_tensor": "dst, data1, data2, op, engine=engine.unknown, name=None",
    "tensor_tensor_scan": "dst, data0, data1, initial, op0, op1, reverse0=False, reverse1=False, name=None",
    "topk": "val_dst, idx_dst, src, n, name=None",
}  # fmt: skip
NOT_GENERATED = {"core_barrier", "get_nc_sub_version", "nc_matmul_mx", "register_alloc", "register_load",
                 "register_move", "register_store", "sendrecv"}  # fmt: skip


def shown(parameter):
    default = parameter.default
    if default is inspect.Parameter.empty:
        return parameter.name
    if isinstance(default, enum.Enum):
        kinds = {getattr(nisa, n): n for n in ("engine", "reduce_cmd", "dge_mode", "oob_mode", "matmul_perf_mode")}
        return f"{parameter.name}={kinds[type(default)]}.{default.name}"
    return f"{parameter.name}={default!r}"


@pytest.mark.parametrize("name", sorted(REGISTRY))
def test_signature_is_that_of_nki(name):
    fn = getattr(nisa, name)
    assert ", ".join(shown(p) for p in inspect.signature(fn).parameters.values()) == SIGNATURES[name]
    assert fn.__doc__ == REGISTRY[name].__doc__ and fn.__name__ == name


@pytest.mark.parametrize("name", sorted({*SIGNATURES, *NOT_GENERATED}))
def test_each_nki_name_exists_or_says_what_to_use(name):
    if name in REGISTRY:
        assert callable(getattr(nisa, name))
    else:
        with pytest.raises(Unsupported, match=f"nki.isa.{name}") as caught:
            getattr(nisa, name)
        assert caught.value.code == "E0104" and caught.value.fix
    with pytest.raises(AttributeError):
        _ = nisa.no_such_instruction


def test_enumerations_have_the_values_of_nki():
    values = {e.name: e.value for e in nisa.engine}
    assert values == {"unknown": 0, "tensor": 1, "scalar": 2, "gpsimd": 3, "dma": 4, "vector": 5, "sync": 6}
    assert {c.name: c.value for c in nisa.reduce_cmd} == {
        "idle": 0, "reset": 1, "reduce": 2, "reset_reduce": 3, "load_reduce": 4}  # fmt: skip
    assert {m.name: m.value for m in nisa.dge_mode} == {"unknown": 0, "swdge": 1, "hwdge": 2, "none": 3}
    assert {v.name: v.value for v in nisa.nc_version} == {"gen2": 2, "gen3": 3, "gen4": 4}


def test_nc_version_follows_the_kernel_or_the_settings():
    with EagerBuilder(target.get("trn1")):
        assert nisa.get_nc_version() is nisa.nc_version.gen2
    with config.override(target="gen4"):
        assert nisa.get_nc_version() is nisa.nc_version.gen4
        assert nl.tile_size.pmax == 128


@pytest.fixture
def tiles():
    with EagerBuilder(TRN2) as builder:
        made = [builder.alloc((128, 8), "float32", Space.SBUF, name) for name in "abc"]
        for tile in made:
            nisa.memset(tile, 1.0)
        yield made


def wrong(match, call):
    with pytest.raises(NkiValidationError, match=match) as caught:
        call()
    assert caught.value.code == "E0103" and caught.value.where.file == __file__
    return str(caught.value)


def test_calls_that_do_not_fit(tiles):
    a, b, c = tiles
    text = wrong("needs op", lambda: nisa.tensor_tensor(a, b, c))
    assert "call it as nki.isa.tensor_tensor(dst, data1, data2, op, engine=" in text
    text = wrong("has no argument mask", lambda: nisa.tensor_copy(a, b, mask=None))
    assert text.splitlines()[3].strip() == "^" * len("None")
    wrong("got src twice", lambda: nisa.tensor_copy(a, b, src=c))
    wrong("takes 4 arguments, not 5", lambda: nisa.tensor_copy(a, b, nisa.engine.vector, "name", 5))
    wrong("src is 3.5; it takes a tensor", lambda: nisa.tensor_copy(a, 3.5))
    wrong("an array of shape", lambda: nisa.tensor_copy(a, np.zeros((128, 8), np.float32)))
    wrong("engine is 'vector'", lambda: nisa.tensor_copy(a, b, engine="vector"))
    wrong("is not True or False", lambda: nisa.tensor_scalar(a, b, nl.add, 1.0, reverse0="yes"))
    with pytest.raises(NkiValidationError, match="'sum' is not an ALU operation") as caught:
        nisa.tensor_tensor(a, b, c, op="sum")
    assert caught.value.code == "E0309" and caught.value.where.file == __file__ and caught.value.argument == "op"


def test_operations_can_be_named_in_several_ways(tiles):
    a, b, c = tiles
    for op in (nl.add, np.add, "add"):
        nisa.tensor_tensor(a, b, c, op)
        assert (a.numpy() == 2).all()
    for op in (nl.exp, np.exp, "exp"):
        nisa.activation(a, op, b)
        assert np.allclose(a.numpy(), np.e)


def test_numpy_numbers_are_numbers(tiles):
    a, b, _ = tiles
    nisa.tensor_scalar(a, b, nl.multiply, np.float32(2.5), op1=nl.add, operand1=np.int64(1))
    assert (a.numpy() == 3.5).all()
    x = np.ones((128, 8), np.float32)
    nisa.tensor_scalar(a, b, nl.multiply, operand0=x[0, 0], reverse0=np.bool_(False))


def test_handles(tiles):
    a, b, _ = tiles
    handle = nisa.tensor_copy(a, b, name="first")
    assert handle.name == "first"
    nisa.tensor_copy(a, b).depends_on(handle)
    with RecordingBuilder(TRN2, "k") as builder:
        tile = builder.alloc((2, 2), "float32")
        first, second = nisa.memset(tile, 0.0), nisa.memset(tile, 1.0)
        with pytest.raises(Unsupported) as caught:
            second.depends_on(first)
        assert caught.value.code == "E0104"


def test_no_kernel():
    tile = None
    with EagerBuilder(TRN2) as builder:
        tile = builder.alloc((2, 2), "float32")
    for call in (lambda: nisa.memset(tile, 0.0), lambda: nl.zeros((2, 2), nl.float32), lambda: tile.numpy()):
        with pytest.raises(NkiValidationError) as caught:
            call()
        assert caught.value.code == "E0101" and caught.value.where.file == __file__


class TestAccumulate:
    """`accumulate=None` overwrites what no matmul has written since the tile was made."""

    @pytest.fixture(params=["eager", "recorded"])
    def build(self, request):
        return EagerBuilder(TRN2) if request.param == "eager" else RecordingBuilder(TRN2, "k")

    @staticmethod
    def operands(builder):
        acc = builder.alloc((16, 64), "float32", Space.PSUM)
        s, m = builder.alloc((32, 16), "float32"), builder.alloc((32, 64), "float32")
        nisa.memset(s, 1.0)
        nisa.memset(m, 1.0)
        return acc, s, m

    @staticmethod
    def decided(handle):
        return handle.instruction.accumulate

    def test_first_overwrites_then_adds(self, build):
        with build as builder:
            acc, s, m = self.operands(builder)
            flags = [self.decided(nisa.nc_matmul(acc, s, m)) for _ in range(3)]
            assert flags == [False, True, True]
            if builder.has_values:
                assert (acc.numpy() == 96).all()

    def test_by_location(self, build):
        with build as builder:
            acc, s, m = self.operands(builder)
            half = m[:, 0:32]
            assert self.decided(nisa.nc_matmul(acc[:, 0:32], s, half)) is False
            assert self.decided(nisa.nc_matmul(acc[:, 32:64], s, half)) is False
            assert self.decided(nisa.nc_matmul(acc, s, m)) is True
            assert self.decided(nisa.nc_matmul(acc[:, 16:48], s, half)) is True
            other = builder.alloc((16, 64), "float32", Space.PSUM)
            even = other[:, 0:64:2]
            assert self.decided(nisa.nc_matmul(even, s, half)) is False
            assert self.decided(nisa.nc_matmul(other[:, 1:64:2], s, half)) is False

    def test_explicit_flags_count_as_writes(self, build):
        with build as builder:
            acc, s, m = self.operands(builder)
            nisa.nc_matmul(acc, s, m, accumulate=False)
            assert self.decided(nisa.nc_matmul(acc, s, m)) is True
            assert self.decided(nisa.nc_matmul(acc, s, m, accumulate=False)) is False

    def test_other_writes_do_not_count(self, build):
        with build as builder:
            acc, s, m = self.operands(builder)
            nisa.memset(acc, 5.0)
            assert self.decided(nisa.nc_matmul(acc, s, m)) is False

    def test_partly_written_is_refused(self, build):
        with build as builder:
            acc, s, m = self.operands(builder)
            nisa.nc_matmul(acc[:, 0:32], s, m[:, 0:32])
            with pytest.raises(Unsupported, match="both add and overwrite") as caught:
                nisa.nc_matmul(acc, s, m)
            assert caught.value.code == "E0104" and caught.value.where.file == __file__


def test_adding_to_what_no_matmul_wrote():
    @nki.jit
    def kernel(x):
        a = nl.load(x)
        acc = nl.ndarray((16, 16), nl.float32, buffer=nl.psum)
        nisa.nc_matmul(acc, a, a, accumulate=True)

    with pytest.raises(RanvierError, match="nothing has written") as caught:
        kernel(np.zeros((16, 16), np.float32))
    assert caught.value.code == "E0401"


@pytest.mark.parametrize("name", target.names())
def test_tile_sizes_are_those_of_the_target(name):
    facts = target.get(name)
    with EagerBuilder(facts):
        size = nl.tile_size
        assert size.pmax == facts.sbuf.partitions.value
        assert (size.psum_num_banks, size.psum_bank_fmax_bytes) == (facts.psum.banks.value, facts.psum.bank_bytes.value)
        assert size.psum_fmax == size.psum_bank_fmax == facts.psum.bank_bytes.value / 4
        assert size.gemm_stationary_fmax == facts.tensor.stationary_fmax.value
        assert size.gemm_moving_fmax == facts.tensor.moving_fmax.value
        assert size.bn_stats_fmax == facts.limits.bn_stats_fmax.value
        assert size.sbuf_fmax_bytes == size.total_available_sbuf_size == facts.sbuf.usable_bytes_per_partition
        assert size.sbuf_fmax == size.sbuf_fmax_bytes / 4
        assert size.sbuf_size_bytes == facts.sbuf.partitions.value * facts.sbuf.bytes_per_partition.value
        with pytest.raises(MissingFact, match=r"E0106 tile_size\.psum_min_align"):
            _ = size.psum_min_align
