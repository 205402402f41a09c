"""Everything that Numba, LLVM and CUDA need; no statistics."""
