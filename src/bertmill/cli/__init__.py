"""The command line: one small file per command; the only room that prints and sets exit codes."""
