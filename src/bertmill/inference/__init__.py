"""Answers out of trained models."""
