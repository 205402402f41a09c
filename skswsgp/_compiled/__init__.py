"""Everything that Numba and LLVM need; no statistics."""
