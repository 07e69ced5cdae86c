"""Evals: cases with a prompt, files and checks, run against a scripted, recorded or real model."""
