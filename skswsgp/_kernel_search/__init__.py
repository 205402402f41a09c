"""The search for the kernel and the noise, and where training starts from."""
