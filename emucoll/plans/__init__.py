"""Whole initializations: a formation, and what follows it."""
