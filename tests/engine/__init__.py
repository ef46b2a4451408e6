"""Behaviour of the running engine."""
