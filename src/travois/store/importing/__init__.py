"""What a user of another agent takes along: sessions, settings, and files that say how to work."""
