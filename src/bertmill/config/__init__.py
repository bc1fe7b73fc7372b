"""Settings: field types, the settings of each command, and reading flags and files."""
