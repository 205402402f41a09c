"""The factor R of a row's K_w as a packed lower triangle in shared memory.

The functions of `_compiled` to `_point` index a `Triangle` as they index an array. The
type of the work arrays of a launch decides which of the two they get. A triangle holds
the 8 x 8 tiles of R on and below the diagonal. Each of its rows is stored in one piece
that ends with the diagonal tile, so that the threads of a team, which read one row
together, read neighbouring numbers.
"""

import operator

from llvmlite import ir

from skswsgp._compiled.cuda_runtime import cuda
from skswsgp._compiled.jit import njit
from skswsgp._compiled.team import BLOCK
from skswsgp._point.state import Workspace, thread_view

TILE_BITS = BLOCK.bit_length() - 1


class SharedWorkspace(Workspace):
    """Work arrays of a launch that keeps R of each slot in shared memory.

    `chol` (slots, side, 0) has no entries; it gives the dtype and the side of R.
    """

    __slots__ = ()


def row_offset(i):
    """Return where row i of a triangle begins, or its size if i is the side.

    The t rows of tiles before that of row i hold t (t + 1) / 2 tiles.
    """
    t = i >> TILE_BITS
    return BLOCK * (t + 1) * ((t << TILE_BITS - 1) + (i & BLOCK - 1))


class Triangle:
    """R in the simulator: an array of numbers that is indexed like a matrix."""

    def __init__(self, values, side):
        self.values, self.shape = values, (side, side)
        self.dtype, self.itemsize = values.dtype, values.itemsize

    def __getitem__(self, at):
        return self.values[self._index(*at)]

    def __setitem__(self, at, value):
        self.values[self._index(*at)] = value

    def _index(self, i, j):
        if not (0 <= i < self.shape[0] and 0 <= j >> TILE_BITS <= i >> TILE_BITS):
            raise IndexError(f"({i}, {j}) is no entry of a triangle of {self.shape}")
        return row_offset(i) + j


def with_triangle(works, work, team):
    """Return the work arrays of a slot, with R in shared memory if `works` has none."""
    if not isinstance(works, SharedWorkspace):
        return work
    side, dtype = len(work.chol), work.chol.dtype
    size = row_offset(side)
    values = cuda.shared.array(0, dtype)[team * size : (team + 1) * size]
    return work._replace(chol=Triangle(values, side))


@njit
def slot_view(works, n):
    """Return the work arrays of this team's slot, the slot, and its share of n rows."""
    slot = cuda.blockIdx.x * cuda.blockDim.y + cuda.threadIdx.y
    work = with_triangle(works, thread_view(works, slot), cuda.threadIdx.y)
    return work, slot, range(slot, n, cuda.gridDim.x * cuda.blockDim.y)


def address(builder, scalar, index):
    """Return the address of a number in the shared memory of the launch."""
    kind, module, name = ir.ArrayType(scalar, 0), builder.module, "skswsgp_triangles"
    numbers = module.globals.get(name)
    if numbers is None:
        numbers = ir.GlobalVariable(module, kind, name, addrspace=3)
        numbers.linkage, numbers.align = "external", 8
    return builder.gep(numbers, [ir.Constant(index.type, 0), index])


def gpu_triangle():
    """Return `with_triangle` for a GPU."""
    offset = cuda.jit(device=True)(row_offset)
    replace = factor_replacement(triangle_type(offset))

    @cuda.jit(device=True)
    def with_triangle(works, work, team):
        return replace(works, work, team * offset(work.chol.shape[0]))

    return with_triangle


def triangle_type(offset):
    """Return the type of triangles, given `row_offset` for a GPU."""
    types, extending = cuda.types, cuda.extending

    class TriangleType(types.Type):
        def __init__(self, dtype):
            self.dtype = dtype
            super().__init__(f"Triangle({dtype})")

    @extending.register_model(TriangleType)
    class TriangleModel(extending.models.StructModel):
        def __init__(self, manager, kind):
            members = {
                "first": types.int64,  # position among the numbers in shared memory
                "shape": types.UniTuple(types.int64, 2),
                "itemsize": types.int64,
                "dtype": types.DType(kind.dtype),
            }
            super().__init__(manager, kind, list(members.items()))

    for name in ("first", "shape", "itemsize", "dtype"):
        extending.make_attribute_wrapper(TriangleType, name, name)
    load, store = gpu_access()

    @extending.overload(operator.getitem)
    def get(R, at):
        if isinstance(R, TriangleType):
            return lambda R, at: load(R, R.first + offset(at[0]) + at[1])

    @extending.overload(operator.setitem)
    def put(R, at, value):
        if isinstance(R, TriangleType):
            return lambda R, at, value: store(R, R.first + offset(at[0]) + at[1], value)

    return TriangleType


def gpu_access():
    """Return functions that read and write the numbers of triangles."""
    types = cuda.types

    @cuda.extending.intrinsic
    def load(typingctx, R, index):
        def generate(context, builder, signature, args):
            scalar = context.get_value_type(R.dtype)
            return builder.load(address(builder, scalar, args[1]))

        return R.dtype(R, types.int64), generate

    @cuda.extending.intrinsic
    def store(typingctx, R, index, value):
        def generate(context, builder, signature, args):
            scalar = context.get_value_type(R.dtype)
            builder.store(args[2], address(builder, scalar, args[1]))
            return context.get_dummy_value()

        return types.void(R, types.int64, R.dtype), generate

    return load, store


def factor_replacement(triangle_type):
    """Return an intrinsic that replaces `chol` as `with_triangle` does."""
    types, at = cuda.types, Workspace._fields.index("chol")

    def keep(context, builder, signature, args):
        return args[1]

    @cuda.extending.intrinsic
    def replace(typingctx, works, work, first):
        if works.instance_class is not SharedWorkspace:
            return work(works, work, first), keep
        kinds = list(work)
        array, kinds[at] = kinds[at], triangle_type(kinds[at].dtype)

        def generate(context, builder, signature, args):
            fields = [builder.extract_value(args[1], i) for i in range(len(kinds))]
            matrix = context.make_array(array)(context, builder, fields[at])
            triangle = context.make_helper(builder, kinds[at])
            side = builder.extract_value(matrix.shape, 0)
            triangle.shape = builder.insert_value(matrix.shape, side, 1)
            triangle.first, triangle.itemsize = args[2], matrix.itemsize
            fields[at] = triangle._getvalue()
            return context.make_tuple(builder, signature.return_type, fields)

        return types.NamedTuple(kinds, Workspace)(works, work, types.int64), generate

    return replace


if cuda is not None and cuda.config.ENABLE_CUDASIM:
    with_triangle = cuda.jit(device=True)(with_triangle)
    slot_view = cuda.jit(device=True)(slot_view)
elif cuda is not None:
    with_triangle = gpu_triangle()
