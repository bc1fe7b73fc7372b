"""The command line: one small file per command. Only this package prints and sets exit codes."""
