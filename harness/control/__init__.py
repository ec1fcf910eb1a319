"""Controller, workers and servers of one run, and what they say to each other over ZeroMQ."""
