"""What to believe: record against evidence, for one task at a time."""
