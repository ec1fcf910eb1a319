"""What was measured, explained: communicators of real jobs, late ranks, runs side by side.

Arithmetic alone. Reads no file, waits for nothing and prints nothing.
"""
