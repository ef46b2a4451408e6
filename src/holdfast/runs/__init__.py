"""The runs of a project: which there are, their record read back, and which one a request means."""
