"""Work spread over processes."""
