"""The report: one HTML file that needs no network, about what `run` or `profile` left in a
directory.

A module for each section: it is handed what the directory holds and returns blocks (text, tables,
charts) or says what is missing. `page` puts them together; the templates hold all markup, style and
script. Nothing here measures or calculates: that is for harness.analysis.
"""
