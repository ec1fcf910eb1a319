"""How bytes move: the seam that algorithms are written against, and its implementation over TCP."""
