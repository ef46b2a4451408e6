"""What the documentation says, run."""
