"""Claims without an outcome: see them, and say what became of them."""
