"""The demo: from raw text to answers, on the documentation of installed packages."""
