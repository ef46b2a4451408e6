"""The append-only record of events: the truth about what was decided."""
