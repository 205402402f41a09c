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


def address_of(function, *arguments):
    """Return the address of a compiled function for arguments like these.

    They are values or their Numba types. The function returns nothing, and must not
    raise. The address is 0 where Numba is switched off.
    """
    if config.DISABLE_JIT:
        return 0
    kinds = (a if isinstance(a, types.Type) else typeof(a) for a in arguments)
    kinds = tuple(map(plain, kinds))
    result = function.get_compile_result(types.none(*kinds))
    address = result.library.get_pointer_to_function(result.fndesc.llvm_func_name)
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


def by_address(function, choices=()):
    """Return a decorator for `call(address, arguments)`, which calls a function.

    The Python code of the call is for where Numba is switched off. Compiled code calls
    the machine code at the address, with a tuple of arguments. When a caller is
    compiled their types must be among the choices, or those for which `address_of` has
    compiled the function; others are refused.
    """

    def replace(python):
        return python if config.DISABLE_JIT else pointer_call(function, choices)

    return replace


def pointer_call(known, choices):
    """Return the intrinsic of `by_address`."""

    @intrinsic
    def call(typingctx, address, arguments):
        kinds = tuple(map(plain, arguments))
        if kinds not in choices and kinds not in COMPILED[known]:
            raise TypingError(f"no function of these arguments: {kinds}")

        def generate(context, builder, signature, values):
            function = context.call_conv.get_function_type(types.none, kinds)
            pointer = builder.inttoptr(values[0], function.as_pointer())
            result, error = (kind.pointee for kind in function.args[:2])
            outputs = (cgutils.alloca_once(builder, kind) for kind in (result, error))
            parts = cgutils.unpack_tuple(builder, values[1])
            packed = context.get_arg_packer(kinds).as_arguments(builder, parts)
            builder.call(pointer, [*outputs, *packed])
            return context.get_dummy_value()

        return types.void(address, arguments), generate

    return call
