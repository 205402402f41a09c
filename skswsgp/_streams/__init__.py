"""Training rows that come in chunks, of which some are kept."""
