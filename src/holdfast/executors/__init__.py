"""Who works: take a call, return an outcome, know nothing else."""
