"""What the two labs on transfer learning, fruits and caltech, have in common: all but data."""
