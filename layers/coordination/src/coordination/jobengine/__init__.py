"""JobEngine: which tables hold completed mechanics, and when their rows go."""
