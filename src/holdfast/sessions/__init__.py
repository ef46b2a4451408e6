"""A run taken up: open for writing, walked over task by task, its views brought up to date."""
