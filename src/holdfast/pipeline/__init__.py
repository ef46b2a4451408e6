"""Says what to do: a pipeline as declared, as plain data, and as a graph of tasks.

definition declared    the decorators, and what they record
compiling              checks all of it, tells every mistake, gives spec and functions; it asks
                       options namespace annotations paths deadlock
names params templates the rules for names, run parameters and paths
spec                   the pipeline as plain data
graph nodes            tasks and what they wait for; barriers and unfolding build it
loader                 the pipeline of a file
inferring              items that only files and views name
rewind                 sending work back
"""
