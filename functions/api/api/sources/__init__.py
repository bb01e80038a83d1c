"""Sources: scheduled pulls, their windows and what became of them. The pulls themselves are scheduled_pull."""
