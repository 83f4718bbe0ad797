"""What the processes of a benchmark do; `__main__` runs one task and reports its values."""
