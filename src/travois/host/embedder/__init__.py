"""A small model of meaning that runs on this machine, without a key and without a network."""
