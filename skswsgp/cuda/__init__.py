"""The engine of NVIDIA GPUs; only `_engine.select` imports it, on demand."""
