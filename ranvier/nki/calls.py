"""How public functions of the kernel language are called: wrong arguments and failures point at the user's own call."""

from __future__ import annotations

import enum
import functools
import inspect
from collections.abc import Callable, Sequence
from typing import ParamSpec, TypeVar

from ranvier.errors import RanvierError, error
from ranvier.loc import capture

P = ParamSpec("P")
R = TypeVar("R")


def bad_call(name: str, signature: inspect.Signature, message: str, argument: str | None = None) -> RanvierError:
    """E0103 for a call of `name` that does not fit its signature."""
    takes = ", ".join(_shown(parameter) for parameter in signature.parameters.values())
    return error("E0103", f"{name}: {message}", where=capture(), argument=argument, fix=f"call it as {name}({takes})")


def _shown(parameter: inspect.Parameter) -> str:
    default = parameter.default
    if default is inspect.Parameter.empty:
        return str(parameter).split(":")[0]
    return f"{parameter.name}={default.name if isinstance(default, enum.Enum) else repr(default)}"


def point_at(failure: RanvierError, names: Sequence[str], given: int) -> None:
    """Let the caret of `failure` find an argument that was passed by position: `given` of `names` were."""
    if failure.argument in names[:given]:
        failure.argument = str(names.index(failure.argument))


def public(fn: Callable[P, R]) -> Callable[P, R]:
    """Make `fn` a public function of the language: a call that does not fit its signature is E0103 at the user's line,
    and the caret of any failure finds its argument whether it was passed by name or by position."""
    signature = inspect.signature(fn)
    names = list(signature.parameters)

    @functools.wraps(fn)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return fn(*args, **kwargs)
        except RanvierError as failure:
            point_at(failure, names, len(args))
            raise
        except TypeError:
            try:
                signature.bind(*args, **kwargs)
            except TypeError as misfit:
                raise bad_call(f"nl.{fn.__name__}", signature, str(misfit)) from None
            raise

    return call
