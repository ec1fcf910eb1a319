"""emucoll: what emulated ranks run, and the worlds they run in. No processes, no command line, no
plots.
"""

__version__ = "0.1.0"
