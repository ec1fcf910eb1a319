"""What will break at the target size, found at sizes that fit here."""
