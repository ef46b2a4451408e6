"""Kills, power cuts, errors and damage, at every operation."""
