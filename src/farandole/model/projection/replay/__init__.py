"""A step played again on paper, bucket by bucket, and fitted to what was measured."""
