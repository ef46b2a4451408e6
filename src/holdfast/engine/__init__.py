"""Who decides: what may start, when to try again, what to record."""
