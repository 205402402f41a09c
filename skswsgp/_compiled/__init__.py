"""What Numba, LLVM and CUDA need; no statistics."""
