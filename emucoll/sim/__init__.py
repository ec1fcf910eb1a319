"""Virtual time, the seam's second implementation: the same ranks, roots and stores on an event loop
whose clock jumps, over a modelled network.
"""
