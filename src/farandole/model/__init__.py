"""What a study computes: pure arithmetic on records, no input or output, no engine."""
