"""Long-term memory as values and rules: what a memory is, what may become one, what is shown."""
