"""API keys and who one is."""
