"""What each command does; `cli` asks and prints, `pipe.run` calls `run`."""
