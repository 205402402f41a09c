"""Calls of compiled functions by their addresses.

Numba compiles all that a function calls once more as a part of it. A function of many
callers that works for microseconds is compiled once, and they call its machine code:
`address_of` compiles it for given types, and `by_address` makes the call. Addresses
hold in one process. They belong to work arrays, which are not stored.
"""

from collections import defaultdict

from numba import typeof, types
from numba.core import cgutils, config
from numba.core.errors import TypingError
from numba.extending import intrinsic

COMPILED = defaultdict(set)  # types of arguments of functions that have an address


def address_of(function, *arguments, result=types.none):
    """Return the address of a compiled function for arguments like these.

    They are values or their Numba types, and `result` is the type that the function
    returns. It must not raise. The address is 0 where Numba is switched off.
    """
    if config.DISABLE_JIT:
        return 0
    kinds = (a if isinstance(a, types.Type) else typeof(a) for a in arguments)
    kinds = tuple(map(plain, kinds))
    found = function.get_compile_result(result(*kinds))
    address = found.library.get_pointer_to_function(found.fndesc.llvm_func_name)
    if address == 0:
        raise RuntimeError(f"Numba has no machine code of {function.__name__}.")
    COMPILED[function].add(kinds)
    return address


def plain(kind):
    """Return the type of an argument without what its machine code does not depend on.

    An array may be read-only, and an integer a constant.
    """
    if isinstance(kind, types.NamedTuple):
        return types.NamedTuple(tuple(map(plain, kind.types)), kind.instance_class)
    if isinstance(kind, types.Array):
        return types.Array(kind.dtype, kind.ndim, kind.layout)
    return types.unliteral(kind)


def by_address(function, choices=(), result=types.none):
    """Return `call(address, arguments)`, by which compiled code calls a function.

    It calls the machine code at the address, with a tuple of arguments. When a caller
    is compiled their types must be among the choices, or those for which `address_of`
    has compiled the function; others are refused. `result` is the type of the result.
    """
    if config.DISABLE_JIT:
        return lambda address, arguments: function(*arguments)

    @intrinsic
    def call(typingctx, address, arguments):
        kinds = tuple(map(plain, arguments))
        if kinds not in choices and kinds not in COMPILED[function]:
            raise TypingError(f"no function of these arguments: {kinds}")

        def generate(context, builder, signature, values):
            code = context.call_conv.get_function_type(result, kinds)
            pointer = builder.inttoptr(values[0], code.as_pointer())
            two = (kind.pointee for kind in code.args[:2])
            outputs = [cgutils.alloca_once(builder, kind) for kind in two]
            parts = cgutils.unpack_tuple(builder, values[1])
            packed = context.get_arg_packer(kinds).as_arguments(builder, parts)
            builder.call(pointer, [*outputs, *packed])
            return builder.load(outputs[0])

        return result(address, arguments), generate

    return call
