"""Output on the terminal: consoles, progress bars and live tables."""
