"""The command line: one file per command, each imported only when it is used."""
