"""Effective training time: the share of a job's time in which it makes progress that it keeps.

`rates` turns counts of failures into a time between them, `storage` sizes into write times, `model`
holds the closed forms, `isolation` those of jobs that lose one replica at a time, `montecarlo`
plays failures, `published` has the forms that others print. Arithmetic alone: no clock, no files,
and chance only from the generator that is handed in. Times are seconds, rates failures of one node
in a second unless their names say otherwise.
"""
