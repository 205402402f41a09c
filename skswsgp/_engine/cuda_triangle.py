"""The factor R of a point as a packed lower triangle in shared memory of its block.

Functions of floors 0 and 1 index a `Triangle` as they index an array; which of the two
they get depends on the type of the work arrays of a launch. It has the tiles of R on
and below the diagonal. A row is as long as its diagonal tile reaches: lanes that read a
row together then read neighbouring numbers, which tiles in a row would not give them.
"""

import operator

from llvmlite import ir

from skswsgp._compiled.cuda_runtime import cuda
from skswsgp._compiled.jit import njit
from skswsgp._compiled.team import BLOCK
from skswsgp._point.state import Workspace, thread_view

TILE_BITS = BLOCK.bit_length() - 1


class SharedWorkspace(Workspace):
    """Work arrays of a launch with room for a Triangle for each place of a block.

    `chol` (places, side, 0) tells the dtype and the side only.
    """

    __slots__ = ()


def start_of(i):
    """Return where row i of a triangle begins; for i = side, how many numbers it has.

    The rows of tiles before, t of them, hold t (t + 1) / 2 tiles.
    """
    t = i >> TILE_BITS
    return BLOCK * (t + 1) * ((t << TILE_BITS - 1) + (i & BLOCK - 1))


class Triangle:
    """What the simulator has in the place of R: numbers in shared memory."""

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
        return start_of(i) + j


def with_triangle(works, work, part):
    """Return the work arrays of a place, with R in part `part` of shared memory.

    They stay as they are where the arrays of the launch are not `SharedWork`.
    """
    if not isinstance(works, SharedWorkspace):
        return work
    side, dtype = len(work.chol), work.chol.dtype
    first, size = part * start_of(side), start_of(side)
    values = cuda.shared.array(0, dtype)[first : first + size]
    return work._replace(chol=Triangle(values, side))


@njit
def slot_view(works, place):
    """Return the work arrays of a place, R in shared memory where it has room there."""
    return with_triangle(works, thread_view(works, place), cuda.threadIdx.y)


# --- the same on a GPU ----------------------------------------------------------------


def address(builder, scalar, index):
    """Return the address of a number in the shared memory that a launch asks for."""
    kind = ir.ArrayType(scalar, 0)
    module = builder.module
    numbers = module.globals.get("skswsgp_triangles")
    if numbers is None:
        numbers = ir.GlobalVariable(module, kind, "skswsgp_triangles", addrspace=3)
        numbers.linkage, numbers.align = "external", 8
    return builder.gep(numbers, [ir.Constant(index.type, 0), index])


def gpu_triangle():
    """Return `with_triangle` for a GPU."""
    start = cuda.jit(device=True)(start_of)
    replace = replace_factor(triangle_type(start))

    @cuda.jit(device=True)
    def with_triangle(works, work, part):
        return replace(works, work, part * start(work.chol.shape[0]))

    return with_triangle


def triangle_type(start):
    """Return the type of triangles, given `start_of` for a GPU.

    `first` is where the triangle begins among the numbers in shared memory.
    """
    types, extending = cuda.types, cuda.extending

    class TriangleType(types.Type):
        def __init__(self, dtype):
            self.dtype = dtype
            super().__init__(f"Triangle({dtype})")

    @extending.register_model(TriangleType)
    class TriangleModel(extending.models.StructModel):
        def __init__(self, manager, kind):
            members = {
                "first": types.int64,
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
            return lambda R, at: load(R, R.first + start(at[0]) + at[1])

    @extending.overload(operator.setitem)
    def put(R, at, value):
        if isinstance(R, TriangleType):
            return lambda R, at, value: store(R, R.first + start(at[0]) + at[1], value)

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


def replace_factor(triangle_type):
    """Return the function that puts a triangle in the place of `chol`.

    Work arrays stay as they are where those of the launch are not `SharedWork`.
    """
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


if cuda is not None:
    if cuda.config.ENABLE_CUDASIM:
        with_triangle = cuda.jit(device=True)(with_triangle)
        slot_view = cuda.jit(device=True)(slot_view)
    else:
        with_triangle = gpu_triangle()
