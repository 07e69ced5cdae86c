"""A model in this process: examples and rules, and a small language model where there is one."""
