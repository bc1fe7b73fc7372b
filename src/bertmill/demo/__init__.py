"""The demo: the whole way from text to answers, on the documentation of installed packages."""
