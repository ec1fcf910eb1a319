"""harness: what starts emulated ranks, watches them and reports what they did.

Imports emucoll, and emucoll never imports it. Nothing here takes part in a collective: a rank's
bytes pass through emucoll alone.
"""
