"""The `tradewind` command: a table of commands, each loaded by name when it is run."""
