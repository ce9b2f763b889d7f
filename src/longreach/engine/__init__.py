"""Faster ways to compute what the reference core computes."""
