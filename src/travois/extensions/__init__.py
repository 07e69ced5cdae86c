"""What programs and packages add to a session: tools, hooks, answers, layers, models."""
