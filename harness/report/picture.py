"""What pictures share: colours that most people can tell apart, and text that is no markup."""

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
"""Okabe and Ito's."""


def escaped(text: str) -> str:
    """As HTML shows it."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
