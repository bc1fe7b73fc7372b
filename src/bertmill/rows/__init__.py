"""Labelled data: files in, records and typed rows out. Knows neither tasks nor torch."""
