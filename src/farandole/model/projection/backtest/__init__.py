"""How right projections would have been: small rows fitted, large ones scored."""
