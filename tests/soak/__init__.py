"""Random projects with random histories, and what must hold afterwards; `python -m tests.soak --help`."""
