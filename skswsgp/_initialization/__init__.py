"""The start of training: kernel, noise, inducing points and q(u)."""
