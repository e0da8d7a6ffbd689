"""``fetch``: asks for a cell of memory before it is needed, and waits for nothing.

A walk over the waiting reads rows that lie far apart, and each of them costs more than all that is done with it. Whoever reads such
a row early, only to have it near, still waits for it as soon as the processor can look no further ahead. This is the instruction
that does not. It changes nothing that anybody could see: naive equivalent, nothing at all, which it is where kernels are not
compiled.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import config, types
from numba.core import cgutils
from numba.extending import intrinsic

_READ, _KEEP, _DATA = 0, 3, 1  # for reading, as near as can be, and no instructions


def _asked(_context: Any, array: Any, place: Any) -> tuple[Any, Any]:
    """Return the type of a call, and what writes the instruction for it."""

    def write(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        address, word = builder.bitcast(builder.gep(data, [arguments[1]]), cgutils.voidptr_t), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [cgutils.voidptr_t, word, word, word])
        insert: Any = cgutils.get_or_insert_function
        instruction = insert(builder.module, kind, "llvm.prefetch.p0")
        builder.call(instruction, [address, word(_READ), word(_KEEP), word(_DATA)])
        return context.get_dummy_value()

    return types.void(array, place), write


def _nothing(_array: Any, _place: int) -> None:
    """Do nothing."""


# of a contiguous array, the cell at this place from its beginning
fetch: Any = _nothing if config.DISABLE_JIT else intrinsic(_asked)  # type: ignore[attr-defined]  # Numba sets it at run time
