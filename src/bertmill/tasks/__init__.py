"""Labelled rows → examples → losses, metrics and answers: one small file per kind of task."""
