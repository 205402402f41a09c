"""The version, which imports nothing."""

__version__ = "0.1.0.dev0"
