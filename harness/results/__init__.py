"""What came of a run: its schema, the environment it ran in, and its files.

Holds no measurement and no layout: engines fill results, `harness.report` shows them. Never imports
click or rich.
"""
