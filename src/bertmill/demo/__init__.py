"""The demo: the whole pipeline on the documentation of installed packages."""
