"""Search by words and by meaning, on this machine, in a file that can always be made again."""
