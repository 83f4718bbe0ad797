"""Step times by forms fitted to rows, and what chooses between these and a replay."""
