"""What backs each claim of speed: run by hand, `make bench`."""
