"""Starting workers on this host, tagging their output, and ending them together."""
