"""Results for people: the table on stdout, progress on stderr.

Computes nothing that a result does not already hold.
"""
