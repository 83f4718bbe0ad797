"""What more workers would give: fits of steps and epochs, joined, with advice."""
