"""What an engine promises, the loops over rows of the CPU, the choice of the device."""
