"""What a run needs, held against what this machine has, before anything is started.

`machine` reads the machine and judges nothing; the rest judges and reads nothing: `case` says what
a layout takes, `limits` compares that with what there is, `arithmetic` chooses the layout and is
what others call. Knows nothing of the command line, of processes or of sockets.
"""
