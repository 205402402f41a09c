"""From rows to lists of their nearest inducing points."""
