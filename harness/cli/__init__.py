"""The command line: one thin module per command, and what they share.

A command turns its flags into a Spec, hands it to an engine and prints the result: data on stdout,
everything else on stderr. Commands don't import each other.
"""
