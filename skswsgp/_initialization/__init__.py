"""Everything that training starts from."""
