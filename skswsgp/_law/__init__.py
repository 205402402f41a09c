"""Laws of observations around the latent functions."""
