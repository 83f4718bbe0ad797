"""A folder for PYTHONPATH; this file only makes wheels carry it."""
