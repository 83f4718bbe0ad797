"""Shared memory on one host."""
