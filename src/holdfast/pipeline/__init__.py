"""What to do: a pipeline as declared, as plain data (spec), and as a graph of tasks (graph)."""
