"""Disasters and their ends, with real processes."""
