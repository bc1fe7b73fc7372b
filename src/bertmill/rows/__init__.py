"""Labeled data: reads files as records and typed rows. Imports neither tasks nor torch."""
