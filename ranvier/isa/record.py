"""What an instruction is: one class that says everything about it, and the machinery that derives the rest.

    @instruction(engines=(Engine.VECTOR,), source="nki.isa.tensor_tensor")
    class TensorTensor(Instruction):
        dst: AccessPattern = dst(SBUF, PSUM)
        data1: AccessPattern = src(SBUF, PSUM)
        op: AluOp = attr(AluOp)
        RULES = {"TT-1": Rule("E0304", "data1 and data2 have as many elements per partition")}
        EXAMPLES = (...)
        def check(self, target): self.require(cond, "TT-1", "data1 has ...", argument="data1")
        def semantics(self, data1, data2): ...    # pure: arrays in, arrays out
        def cost(self, target, engine): ...       # only the target's numbers

Derived elsewhere: the public `nki.isa` function, verification (`verify`), functional execution (`sim.machine`), timing,
dependencies, text form, reference page and tests.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeVar

import numpy as np

from ranvier.dtypes import DType
from ranvier.errors import CODES, error
from ranvier.isa.access import AccessPattern, Space
from ranvier.loc import Loc
from ranvier.target.spec import Confidence, Engine, Fact, Target

SBUF, PSUM, HBM = Space.SBUF, Space.PSUM, Space.HBM


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule of an instruction: the error code it raises and one sentence that says what must hold."""

    code: str
    text: str


@dataclass(frozen=True, slots=True)
class Time:
    """A duration in ns, and how much of it rests on facts that are only estimated."""

    ns: float = 0.0
    estimated_ns: float = 0.0

    def __add__(self, other: Time) -> Time:
        return Time(self.ns + other.ns, self.estimated_ns + other.estimated_ns)

    def at_least(self, other: Time) -> Time:
        return self if self.ns >= other.ns else other

    def times(self, factor: float) -> Time:
        return Time(self.ns * factor, self.estimated_ns * factor)


def ns(count: float, *facts: Fact, clock: Fact | None = None, rate: Fact | None = None) -> Time:
    """`count` times the facts, in ns; with `clock` the product is cycles, with `rate` it is an amount per ns."""
    value = float(count)
    for fact in facts:
        value *= fact.value
    for divisor in (clock, rate):
        if divisor is not None:
            value /= divisor.value
    used = [f for f in (*facts, clock, rate) if f is not None]
    return Time(value, value if any(f.confidence is Confidence.ESTIMATED for f in used) else 0.0)


@dataclass(frozen=True, slots=True)
class DmaWork:
    """Data movement of one DMA instruction: descriptors of one size, spread over DMA engines.

    `hbm_bytes` is what crosses the HBM port, `mode` how descriptors are made ("static", "hwdge", "swdge"),
    `efficiency` the share of an engine's rate that this kind of transfer reaches.
    """

    descriptors: int
    descriptor_bytes: int
    engines: int
    hbm_bytes: int
    mode: str
    efficiency: float = 1.0


@dataclass(frozen=True, slots=True)
class Cost:
    """Time of one instruction: `busy` occupies the engine, the result is there `latency` after the start (>= busy).

    `table` names the activation table that must be resident, `dma` the transfer that a trigger starts; then `busy` is the
    trigger's own time and `latency` is ignored.
    """

    busy: Time
    latency: Time
    table: str | None = None
    dma: DmaWork | None = None


class _Required:
    def __repr__(self) -> str:
        return "required"


REQUIRED = _Required()
"""Stands for the default of a field that has none."""


@dataclass(frozen=True, slots=True)
class OperandSpec:
    """One field of a record: its role and what it accepts."""

    name: str
    role: str  # "dst", "src", "state" or "attr"
    spaces: tuple[Space, ...] = ()
    dtypes: tuple[DType, ...] | None = None
    optional: bool = False
    vector: bool = False
    scalar: bool = False
    type: Any = None
    default: Any = REQUIRED
    doc: str = ""
    state: str = ""
    all_lanes: bool = False
    explicit: bool = False


def _field(spec: OperandSpec, default: Any) -> Any:
    metadata = {"spec": spec}
    return field(metadata=metadata) if default is REQUIRED else field(metadata=metadata, default=default)


def dst(
    *spaces: Space, dtypes: tuple[DType, ...] | None = None, optional: bool = False, vector=False, explicit=False, doc="",
) -> Any:
    """A written operand in one of `spaces`. With `vector` it is one value per partition. An optional operand may be None;
    if it is `explicit` the public function has no default for it, and None has to be written."""
    spec = OperandSpec("", "dst", spaces, dtypes, optional, vector, doc=doc, explicit=explicit)
    return _field(spec, None if optional else REQUIRED)


def src(
    *spaces: Space, dtypes: tuple[DType, ...] | None = None, optional: bool = False, vector=False, scalar=False,
    default: Any = REQUIRED, explicit=False, doc="",
) -> Any:
    """A read operand. `vector`: one value per partition ([P, 1]); `scalar`: a Python number is accepted as well;
    `optional` and `explicit` as in `dst`."""
    if optional and default is REQUIRED:
        default = None
    spec = OperandSpec("", "src", spaces, dtypes, optional, vector, scalar, default=default, doc=doc, explicit=explicit)
    return _field(spec, default)


def attr(type: Any, default: Any = REQUIRED, doc: str = "") -> Any:
    """An attribute: a value that is fixed when the instruction is made."""
    spec = OperandSpec("", "attr", type=type, default=default, doc=doc)
    return _field(spec, default)


def state(name: str, doc: str = "", all_lanes: bool = False) -> Any:
    """Hidden hardware state that the instruction reads and writes: one float32 per partition, kept between instructions.

    The instruction gets those of the partitions of its first read operand (without one: of dst), or with `all_lanes` of
    all partitions. The field holds no value; `uses_state` of the instruction says whether this one touches it.
    """
    spec = OperandSpec("", "state", default=None, doc=doc, state=name, all_lanes=all_lanes)
    return _field(spec, None)


@dataclass(frozen=True, slots=True)
class Example:
    """An example of an instruction: `make(tile)` gives the keyword arguments; `tile(space, shape, dtype, columns)` makes operands
    (`columns`, a slice, selects part of the free axis of a 2-D tile, `partitions` of the partition axis).

    With `rule` it must fail with that rule; otherwise it must be legal on all targets that have `feature`. `contents`
    gives the values of operands that need certain ones, from their shape.
    """

    make: Callable[..., dict[str, Any]]
    rule: str | None = None
    feature: str | None = None
    note: str = ""
    contents: Mapping[str, Callable[[tuple[int, ...]], np.ndarray]] = field(default_factory=dict)


GENERIC_RULES: dict[str, Rule] = {
    "ISA-1": Rule("E0301", "an operand lies in a memory that the instruction reaches"),
    "ISA-2": Rule("E0302", "an operand covers at most 128 partitions"),
    "ISA-3": Rule("E0303", "an operand starts at a partition that its size allows"),
    "ISA-4": Rule("E0305", "an operand has one of the dtypes that the instruction takes"),
    "ISA-5": Rule("E0306", "the engine is one that runs the instruction"),
    "ISA-6": Rule("E0307", "the generation has the instruction"),
    "ISA-7": Rule("E0304", "an operand with one value per partition has the partitions of dst and one element in each"),
    "ISA-8": Rule("E0301", "gpsimd reaches SBUF only"),
    "ISA-9": Rule("E0304", "element-wise operands have the partitions and the elements per partition of dst"),
    "ISA-10": Rule("E0308", "an operand has at most 64K elements per partition, 4K in PSUM"),
    "ISA-11": Rule("E0308", "the free elements of an operand are at most four strides"),
}

T = TypeVar("T", bound="type[Instruction]")


@dataclass(frozen=True, kw_only=True, eq=False)
class Instruction:
    """Base of all instruction records. Immutable; `loc` is the user's line, `name` an optional label."""

    name: str | None = None
    loc: Loc | None = field(default=None, compare=False, repr=False)

    MNEMONIC: ClassVar[str] = ""
    ENGINES: ClassVar[tuple[Engine, ...]] = ()
    FEATURE: ClassVar[str | None] = None
    SOURCE: ClassVar[str] = ""
    COST_SOURCE: ClassVar[str] = ""
    ELEMENTWISE: ClassVar[bool] = False
    IS_DMA: ClassVar[bool] = False
    RULES: ClassVar[dict[str, Rule]] = {}
    EXAMPLES: ClassVar[tuple[Example, ...]] = ()
    SPECS: ClassVar[tuple[OperandSpec, ...]] = ()
    SRC_NAMES: ClassVar[tuple[str, ...]] = ()
    DST_NAMES: ClassVar[tuple[str, ...]] = ()

    # -- what a record defines ------------------------------------------------------------------------------------------
    def check(self, target: Target) -> None:
        """Rules that the field kinds cannot say; calls `require`."""

    def semantics(self, *operands: Any) -> Any:
        """Arrays of the read operands in field order (None if absent, numbers as they are) to arrays of the dst fields.

        Operands come as float32 unless `arithmetic` says otherwise. Element-wise records get all operands in dst's shape
        (vector operands broadcast against it); others in the shape of their own access pattern.
        """
        raise NotImplementedError

    def semantics_on(self, target: Target) -> Callable[..., Any]:
        """`semantics` as `target` computes it, where generations differ."""
        return self.semantics

    def cost(self, target: Target, engine: Engine) -> Cost:
        """Time on `engine`, from the target's facts only."""
        raise NotImplementedError

    @property
    def arithmetic(self) -> str:
        """"float32": operands are converted to it; "raw": operands come in their own dtype."""
        return "float32"

    @property
    def reads_dst(self) -> bool:
        """dst is read before it is written (accumulation, predicated copy); it then is the first operand."""
        return False

    def uses_state(self) -> bool:
        """Whether this instruction touches its state fields."""
        return False

    def legal_engines(self, target: Target) -> tuple[Engine, ...]:
        """Engines that can run this instruction, best first."""
        return self.ENGINES

    def flops(self) -> int:
        """Floating-point operations of a matmul (multiply and add are two); 0 for all others."""
        return 0

    # -- derived ----------------------------------------------------------------------------------------------------------
    def require(self, holds: bool, rule: str, message: str, *, argument: str | None = None, fix: str | None = None) -> None:
        """Raise the error of `rule` with `message`, at the user's line, unless `holds`."""
        if not holds:
            spec = self.RULES.get(rule) or GENERIC_RULES[rule]
            raise error(spec.code, f"{self.MNEMONIC}: {message}", rule=rule, where=self.loc, argument=argument, fix=fix)

    def operands(self, role: str) -> Iterator[tuple[OperandSpec, AccessPattern]]:
        for spec in self.SPECS:
            if spec.role == role:
                value = getattr(self, spec.name)
                if isinstance(value, AccessPattern):
                    yield spec, value

    def reads(self) -> list[AccessPattern]:
        """Every access pattern that is read, indices of indirect operands included."""
        found = [ap for name in self.SRC_NAMES if isinstance(ap := getattr(self, name), AccessPattern)]
        written = self.writes()
        if self.reads_dst:
            found += written
        for ap in (*found, *written):
            if ap.index is not None:
                found.append(ap.index.ap)
        return found

    def writes(self) -> list[AccessPattern]:
        return [ap for name in self.DST_NAMES if isinstance(ap := getattr(self, name), AccessPattern)]

    def states(self) -> tuple[str, ...]:
        """Names of the hidden state this instruction reads and writes."""
        return tuple(s.state for s in self.SPECS if s.role == "state") if self.uses_state() else ()

    def engine_on(self, target: Target) -> Engine:
        """The engine asked for, or the best legal one."""
        asked = getattr(self, "engine", Engine.UNKNOWN)
        return asked if asked is not Engine.UNKNOWN else self.legal_engines(target)[0]

    def key(self) -> tuple:
        return (type(self), *(getattr(self, s.name) for s in self.SPECS), self.name)

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.key() == other.key()  # type: ignore[attr-defined]

    def __hash__(self) -> int:
        return hash(self.key())


REGISTRY: dict[str, type[Instruction]] = {}


def instruction(
    *, engines: tuple[Engine, ...], source: str, cost_source: str, feature: str | None = None, elementwise: bool = False,
    dma: bool = False,
) -> Callable[[T], T]:
    """Make a class an instruction record: freeze it, collect its fields, check that it is complete, register it.

    `source` and `cost_source` say where the facts come from, `feature` names the target feature it needs,
    `dma` marks a data movement that `engines` only trigger (it reaches any partition).
    """

    def wrap(cls: T) -> T:
        made = dataclass(frozen=True, kw_only=True, eq=False)(cls)
        specs = []
        for f in dataclasses.fields(made):
            if "spec" in f.metadata:
                specs.append(dataclasses.replace(f.metadata["spec"], name=f.name))
        mnemonic = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", made.__name__).lower()
        made.MNEMONIC = made.__dict__.get("MNEMONIC", mnemonic)
        made.ENGINES, made.SOURCE, made.COST_SOURCE = engines, source, cost_source
        made.FEATURE, made.ELEMENTWISE, made.IS_DMA, made.SPECS = feature, elementwise, dma, tuple(specs)
        made.SRC_NAMES = tuple(spec.name for spec in specs if spec.role == "src")
        made.DST_NAMES = tuple(spec.name for spec in specs if spec.role == "dst")
        _complete(made)
        REGISTRY[made.MNEMONIC] = made
        return made

    return wrap


def _complete(cls: type[Instruction]) -> None:
    missing = [n for n in ("semantics", "cost") if getattr(cls, n) is getattr(Instruction, n)]
    missing += [n for n in ("__doc__", "EXAMPLES", "SOURCE", "COST_SOURCE", "ENGINES") if not getattr(cls, n)]
    if missing:
        raise error("E0902", f"record {cls.__name__} lacks {', '.join(missing)}")
    for rule_id, rule in cls.RULES.items():
        if rule.code not in CODES:
            raise error("E0902", f"rule {rule_id} of {cls.__name__} names the unknown code {rule.code}")


def verify(inst: Instruction, target: Target) -> None:
    """Check every rule of `inst` on `target`: those that follow from the field kinds, then the record's own."""
    if inst.FEATURE is not None and not target.has(inst.FEATURE):
        inst.require(False, "ISA-6", f"{target.title} ({target.generation}) lacks {inst.MNEMONIC}")
    # Messages are made only when a rule fails: this runs for every instruction of a kernel.
    for spec in inst.SPECS:
        if spec.role in ("dst", "src"):
            ap = getattr(inst, spec.name)
            if isinstance(ap, AccessPattern):
                _verify_operand(inst, spec, ap, target)
    _verify_engine(inst, target)
    if inst.ELEMENTWISE:
        _verify_elementwise(inst)
    inst.check(target)


def _verify_operand(inst: Instruction, spec: OperandSpec, ap: AccessPattern, target: Target) -> None:
    name, space = spec.name, ap.buffer.space
    if space not in spec.spaces:
        can = " or ".join(s.value for s in spec.spaces)
        inst.require(False, "ISA-1", f"{name} is in {space.value}; it can be in {can}", argument=name)
    if spec.dtypes is not None and ap.dtype not in spec.dtypes:
        can = ", ".join(d.name for d in spec.dtypes)
        inst.require(False, "ISA-4", f"{name} is {ap.dtype}; it can be {can}", argument=name)
    if space is HBM:
        return
    count, start = ap.pattern[0][1], ap.partition
    limit = target.sbuf.partitions.value
    if count > limit:
        inst.require(False, "ISA-2", f"{name} covers {count} partitions; there are {limit}", argument=name)
    if inst.IS_DMA:
        return
    most = (target.limits.psum_elements_max if space is PSUM else target.limits.sbuf_elements_max).value
    if ap.free_elements > most:
        message = f"{name} has {ap.free_elements} elements per partition; in {space.value} at most {most} fit"
        inst.require(False, "ISA-10", message, argument=name)
    dims = target.limits.access_dims_max.value
    if len(ap.pattern) > dims + 1 and ap.free_dims > dims:
        message = f"{name} takes {ap.free_dims} strides besides the partitions; the hardware has {dims}"
        inst.require(False, "ISA-11", message, argument=name)
    if start == 0:
        return
    step = target.limits.start_step(count)
    if start % step:
        message = f"{name} starts at partition {start}; {count} partitions start at a multiple of {step}"
        inst.require(False, "ISA-3", message, argument=name)


def _verify_engine(inst: Instruction, target: Target) -> None:
    asked = getattr(inst, "engine", Engine.UNKNOWN)
    legal = inst.legal_engines(target)
    if asked in legal or (asked is Engine.UNKNOWN and legal):
        return
    if asked in (Engine.GPSIMD, Engine.UNKNOWN) and Engine.GPSIMD in inst.ENGINES and not inst.IS_DMA:
        for role in ("dst", "src"):
            for spec, ap in inst.operands(role):
                inst.require(
                    ap.space is not PSUM, "ISA-8", f"{spec.name} is in psum, and gpsimd would run this",
                    argument=spec.name, fix=f"copy {spec.name} to sbuf",
                )
    can = ", ".join(e.name.lower() for e in legal) or "none"
    who = "no engine runs this" if asked is Engine.UNKNOWN else f"engine {asked.name.lower()} does not run this; {can} can"
    inst.require(False, "ISA-5", who, argument="engine")


def _verify_elementwise(inst: Instruction) -> None:
    result, out = next(inst.operands("dst"))
    partitions, elements = out.partitions, out.free_elements
    for spec in inst.SPECS:
        ap = getattr(inst, spec.name)
        if spec is result or not isinstance(ap, AccessPattern):
            continue
        if ap.partitions == partitions and ap.free_elements == (1 if spec.vector else elements):
            continue
        if spec.vector:
            message = f"{spec.name} has shape {ap.shape}; with dst of shape {out.shape} it must be ({partitions}, 1)"
            inst.require(False, "ISA-7", message, argument=spec.name)
        inst.require(False, "ISA-9", f"{spec.name} has shape {ap.shape}, dst has shape {out.shape}", argument=spec.name)


def form(inst: Instruction) -> tuple:
    """What the rules of an instruction depend on: its class, its attributes, and its operands but for the buffers' names.

    Of two instructions with equal forms both are legal or neither, so a checker looks at each form once.
    """
    parts: list[Any] = [type(inst)]
    for spec in inst.SPECS:
        value = getattr(inst, spec.name)
        if isinstance(value, AccessPattern):
            buffer, index = value.buffer, value.index
            parts += (buffer.space, buffer.shape, buffer.dtype, value.offset, value.pattern, value.dtype, value.partition)
            if index is not None:
                parts += (index.stride, index.bound, index.ap.offset, index.ap.pattern, index.ap.buffer.shape)
        else:
            parts.append(value)
    return tuple(parts)


def as_outputs(result: Any) -> tuple[np.ndarray, ...]:
    """What `semantics` returned, as a tuple."""
    return result if isinstance(result, tuple) else (result,)
