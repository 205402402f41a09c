"""How q(u) is found, given a kernel and where to start."""
