"""SLURM: what an allocation has, and jobs that are written, submitted and followed."""
