"""The simulated core: what a program computes (interpreter) and how long it takes (timing)."""
