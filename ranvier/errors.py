"""Every error a user can see: a stable code, whose fault it is, the rule, and a way out.

An error is raised as
``raise error("E0304", "data1 has shape (128, 512), data2 has (128, 1)", rule="TT-1", where=loc)``.
`CODES` is the whole catalogue; ``ranvier explain CODE`` prints an entry, and the tests demand a test for each.

Code ranges: E01 kernel language, E02 tensors and access patterns, E03 instruction rules, E04 undefined behaviour found
while simulating, E05 compiler resources, E06 graphs and front ends, E07 artifacts and caches, E08 settings, targets and
the command line, E09 internal.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ranvier.loc import Loc


class Kind(enum.Enum):
    """Whose fault a failure is."""

    USER = "a documented rule is broken"
    UNDEFINED = "legal to write, no defined result"
    UNSUPPORTED = "deliberately not supported"
    MISSING_FACT = "no public source states a number this needs"
    INTERNAL = "a bug in ranvier"


@dataclass(frozen=True, slots=True)
class ErrorSpec:
    """One entry of the catalogue. `title` completes "E0304: ..."; `page` is what ``ranvier explain`` prints."""

    code: str
    kind: Kind
    title: str
    page: str
    fix: str


class RanvierError(Exception):
    """Base of all errors of this package.

    Attributes: `code` (stable, "E0304"), `kind` (`Kind`, whose fault), `where` (`Loc` of the user's own source),
    `rule` (id of the broken rule or None), `message` (what is wrong, with the actual values), `fix` (a way out),
    `argument` (the operand the caret points at, or None), `notes` (more lines, such as an allocation's own location).
    """

    def __init__(
        self,
        code: str,
        message: str,
        *,
        where: Loc | None = None,
        rule: str | None = None,
        fix: str | None = None,
        argument: str | None = None,
        notes: tuple[str, ...] = (),
    ):
        spec = CODES[code]
        self.code, self.kind, self.message = code, spec.kind, message
        self.where, self.rule, self.argument, self.notes = where, rule, argument, notes
        self.fix = fix or spec.fix
        super().__init__(message)

    def __str__(self) -> str:
        rule = f"   [rule {self.rule}]" if self.rule else ""
        lines = [f"{self.code} {self.message}{rule}"]
        if self.where is not None:
            lines += self.where.render(self.argument)
        lines += [f"  note: {note}" for note in self.notes]
        if self.fix:
            lines.append(f"  fix: {self.fix}")
        return "\n".join(lines)


class UserError(RanvierError):
    """The kernel, model or call breaks a documented rule."""


class NkiValidationError(UserError):
    """A constraint of the kernel language or of an instruction is violated (the name NKI gives it)."""


class UndefinedBehavior(RanvierError):
    """Legal to write, but without a defined result: uninitialized read, race, overlap."""


class Unsupported(RanvierError):
    """Deliberately not supported; the message says what to use instead."""


class MissingFact(RanvierError):
    """No public source states a number that this needs."""


class InternalError(RanvierError):
    """A bug in ranvier; the message names the pass."""


def error(code: str, message: str, **details) -> RanvierError:
    """The exception object for `code`, of the class its kind asks for. Keywords as `RanvierError`."""
    kind = CODES[code].kind
    if kind is Kind.USER:
        cls = NkiValidationError if code[:3] in ("E01", "E02", "E03") else UserError
    else:
        cls = {
            Kind.UNDEFINED: UndefinedBehavior,
            Kind.UNSUPPORTED: Unsupported,
            Kind.MISSING_FACT: MissingFact,
            Kind.INTERNAL: InternalError,
        }[kind]
    return cls(code, message, **details)


CODES: dict[str, ErrorSpec] = {}


def _add(code: str, kind: Kind, title: str, page: str, fix: str = "") -> None:
    CODES[code] = ErrorSpec(code, kind, title, " ".join(page.split()), " ".join(fix.split()))


# E01: kernel language -------------------------------------------------------------------------------------------------
_add("E0101", Kind.USER, "a kernel-language function was used outside a kernel",
     """Functions of `nki.language` and `nki.isa` act on the kernel that is being run or recorded. Outside of one
     there is nothing to act on.""",
     "call the function that uses them through `nki.jit` or `nki.simulate`")
_add("E0102", Kind.USER, "a kernel argument or result has a type that kernels do not take",
     """Kernels take numpy, torch and jax arrays, Python numbers, strings, booleans and None, and return tensors in
     HBM.""",
     "convert the argument to an array, or copy the result to a shared_hbm tensor before it is returned")
_add("E0103", Kind.USER, "an argument of a language function is not valid",
     "A function of `nki.language` or `nki.isa` was called with an argument of the wrong type or value.",
     "see the function's docstring for what it takes")
_add("E0104", Kind.UNSUPPORTED, "a part of the kernel language that is not available",
     "The name exists in NKI, but this version does not implement it.",
     "the message says what to use instead")
_add("E0105", Kind.UNSUPPORTED, "a kernel writes one of its inputs",
     """The inputs of a kernel, its parameters and constants keep their values; results are tensors that the kernel
     makes.""",
     "write to a tensor made with nl.ndarray(..., buffer=nl.shared_hbm) and return it")
_add("E0106", Kind.MISSING_FACT, "a size that no public source states",
     "The name exists in NKI, but what it gives is not published for any generation, and nothing is made up here.",
     "use a number that you know, for the hardware that you know")

# E02: tensors and access patterns -------------------------------------------------------------------------------------
_add("E0201", Kind.USER, "an index or slice reaches outside its tensor",
     """Indices and slices must lie within the tensor. There is no clipping as in numpy: a slice that is too long is
     an error.""",
     "shorten the slice, for example with min(size, start + tile)")
_add("E0202", Kind.USER, "a tensor does not fit in its memory",
     """A tile in SBUF or PSUM has at most 128 partitions, and its other dimensions must fit in one partition; a
     PSUM tile in eight banks of 2 KiB.""",
     "split the tensor into tiles")
_add("E0203", Kind.USER, "an operation on a tensor's shape is not possible",
     "reshape, permute, broadcast and the other view operations never copy; those that would need a copy are refused.",
     "copy into a new tile with the shape you need")

# E03: instruction rules -----------------------------------------------------------------------------------------------
_add("E0301", Kind.USER, "an operand lies in a memory the instruction cannot reach",
     """Each engine reaches certain memories only: the tensor engine reads SBUF and writes PSUM; vector and scalar
     engines reach SBUF and PSUM; gpsimd reaches SBUF; DMA reaches HBM and SBUF.""",
     "copy the operand to a memory that the instruction reaches")
_add("E0302", Kind.USER, "too many partitions",
     "SBUF and PSUM have 128 partitions, and an instruction covers at most 128 of them.",
     "split the tile along its first dimension into pieces of at most 128")
_add("E0303", Kind.USER, "an operand starts at a partition that its size does not allow",
     """Engines address partitions in quadrants of 32. An operand of more than 64 partitions starts at partition 0;
     of 33 to 64 at 0 or 64; of up to 32 at 0, 32, 64 or 96.""",
     "place the tile at an allowed start partition, or move it there with a DMA copy")
_add("E0304", Kind.USER, "operand shapes do not agree",
     """The operands of an instruction must agree in partitions and in elements per partition; instructions do not
     broadcast.""",
     "slice or view the operands so that their shapes agree; tensor_scalar takes one value per partition")
_add("E0305", Kind.USER, "an operand has a dtype the instruction does not take",
     "Each operand of an instruction takes certain dtypes only.",
     "cast the operand with tensor_copy into a tile of an allowed dtype")
_add("E0306", Kind.USER, "the instruction does not run on the engine asked for",
     "Each instruction runs on certain engines, and some operations on one of them only.",
     "leave `engine` out, and an engine that can run the instruction is chosen")
_add("E0307", Kind.USER, "this generation lacks the instruction or the option",
     "Some instructions, dtypes and options exist from a later generation on.",
     "choose a target that has it, or the alternative that the message names")
_add("E0308", Kind.USER, "an operand is larger than the instruction allows",
     "Instructions have limits on the free size of their operands (a matmul: 128 stationary and 512 moving columns).",
     "split the operand along its free dimension")
_add("E0309", Kind.USER, "an argument of the instruction has a value that it does not take",
     "The attribute is not one of the values the instruction takes, or not in combination with another attribute.",
     "see the instruction's documentation for the values it takes")
_add("E0310", Kind.USER, "an access to PSUM crosses a bank",
     "A matmul writes within one PSUM bank of 2 KiB per partition (512 float32 values).",
     "use tiles of at most 512 float32 columns")

# E04: undefined behaviour ---------------------------------------------------------------------------------------------
_add("E0401", Kind.UNDEFINED, "memory is read that was never written",
     """SBUF, PSUM and fresh HBM tensors hold nothing defined until something is written to them. On hardware the result
     depends on what ran before.""",
     "initialize the tile (nki.isa.memset, a load, a matmul that overwrites) before it is read")
_add("E0402", Kind.UNDEFINED, "two accesses to the same memory are not ordered",
     "Nothing orders the two instructions, so either may come first.",
     "order them by a dependency")
_add("E0403", Kind.UNDEFINED, "a dynamic index is out of bounds",
     "An index that an instruction read from memory points outside the tensor.",
     "check the index values, or ask for oob_mode.skip")
_add("E0404", Kind.UNDEFINED, "the engines wait for each other forever",
     """Each engine waits for a semaphore that only another waiting engine would signal. The message shows who waits
     for what.""",
     "")
_add("E0405", Kind.UNDEFINED, "an operand has contents for which the instruction has no defined result",
     """The instruction defines its result only for certain contents of this operand. A transpose on the tensor
     engine, for example, moves data by a matrix with a single one in each column.""",
     "see the instruction's documentation for the contents it takes")

# E05: compiler resources ----------------------------------------------------------------------------------------------
_add("E0501", Kind.USER, "the program needs more on-chip memory than there is",
     """The live tiles do not fit in SBUF or PSUM at some point of the program, and nothing that could be moved to HBM
     would make them fit. The message lists the largest live tiles with their source lines.""",
     "use smaller tiles, or free tiles earlier by computing in smaller pieces")
_add("E0502", Kind.USER, "the program needs more HBM than the core has",
     "Parameters, inputs, outputs and intermediate tensors exceed the HBM that belongs to the core.",
     "use a smaller batch, a smaller dtype, or several cores")

# E06: graphs and front ends -------------------------------------------------------------------------------------------
_add("E0601", Kind.USER, "a graph operation has operands that do not fit together",
     "Shapes or dtypes of the operands do not fit the operation.", "")
_add("E0602", Kind.UNSUPPORTED, "the model uses operators that are not supported",
     "The message lists each unsupported operator with the module path and source line that uses it.",
     "`ranvier ops torch` lists what is supported")
_add("E0603", Kind.USER, "an input does not match what the program was compiled for",
     "A compiled program has static shapes and dtypes: those of the example inputs.",
     "call with inputs of the compiled shapes, or compile again for the new ones")
_add("E0604", Kind.UNSUPPORTED, "the compiler has no lowering for this operation in this form",
     """The operation is known to the graph level, but not in this form (the message gives shapes and attributes) to
     the core.""",
     "")
_add("E0605", Kind.USER, "text of the intermediate representation cannot be parsed",
     "The text is not what the printer writes: the message gives line and column, and what was expected there.", "")
_add("E0606", Kind.USER, "a stage of the compiler disagrees with the reference",
     "`ranvier check` ran a stage beside the reference evaluation and found a difference above the tolerance.",
     """if no pass of yours is involved this is a bug in ranvier: report it with the message and, if possible, the
     folder that `ranvier compile --dump DIR` writes""")
_add("E0607", Kind.USER, "the model could not be exported",
     "torch.export could not trace the model; its own message follows.",
     "make the model exportable: no data-dependent Python control flow, tensors as inputs")
_add("E0608", Kind.USER, "an index in the data reaches outside its tensor",
     "Look-ups (embeddings, gather, scatter) take indices from 0 to the extent of the axis minus one.",
     "check the indices (for an embedding: token ids below the size of the vocabulary)")

# E07: artifacts and caches --------------------------------------------------------------------------------------------
_add("E0701", Kind.USER, "the file is not a ranvier artifact",
     "The file does not begin with the mark of an artifact.", "give a file that Executable.save wrote")
_add("E0702", Kind.USER, "the artifact was written by a newer version",
     "The format version of the file is higher than this version reads.", "upgrade ranvier")
_add("E0703", Kind.USER, "the artifact is damaged or cut short",
     "Sizes or checksums in the file do not agree with its contents.", "copy or save it again")
_add("E0704", Kind.UNSUPPORTED, "a model with inputs or outputs that an artifact cannot describe",
     """A saved program is called without the framework it comes from. Its inputs and outputs are tensors, numbers,
     strings and None in tuples, lists, dictionaries and dataclasses.""",
     "wrap the model in a module that takes and returns such values")

# E08: settings, targets, command line ---------------------------------------------------------------------------------
_add("E0801", Kind.USER, "no target has this name",
     "Targets are chosen by name, in any case: that of the instances (trn2), of the chip or of the generation (gen3).",
     "`ranvier targets` lists them")
_add("E0802", Kind.USER, "a setting has a value it does not take",
     "Settings are typed; the message says what the setting takes and where the value came from.", "")
_add("E0803", Kind.USER, "a package that this needs is not installed",
     "Front ends need their framework, which is an optional extra.", "install the extra that the message names")
_add("E0804", Kind.USER, "a file named on the command line cannot be used",
     "The file does not exist, cannot be read, or does not define what the command needs.", "")
_add("E0805", Kind.USER, "a target has no fact or feature of this name",
     "Facts of a target are named by dotted paths such as dma.bytes_per_ns, features by names such as hwdge.",
     "`ranvier targets NAME` lists the facts and features of a target")
_add("E0806", Kind.USER, "another package has the name nki",
     "`nki.install` gives this package the name nki, which another one that is installed here has.",
     "import ranvier.nki instead, or uninstall the other package")

# E09: internal --------------------------------------------------------------------------------------------------------
_add("E0901", Kind.INTERNAL, "a pass produced something illegal",
     "After each pass the rules of its level are checked. This pass broke one: a bug in ranvier, not in your program.",
     "please report it with the message and, if possible, the folder that `--dump DIR` writes")
_add("E0902", Kind.INTERNAL, "an instruction's record disagrees with itself",
     "An internal consistency check of an instruction record failed.",
     "please report it")
