"""The labs' networks, a file each; its framework is imported with the file."""
