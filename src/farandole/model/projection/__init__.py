"""What more workers would give, from runs on few: steps, epochs, and both joined with money."""
