"""What a trained model says of its latent functions, also at rows left out."""
