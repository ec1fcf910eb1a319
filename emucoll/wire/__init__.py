"""Wire formats, sans-IO: bytes to messages and back, with no socket, no clock and no randomness."""
