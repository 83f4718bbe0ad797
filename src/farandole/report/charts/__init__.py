"""One module per kind of figure; each makes a Figure from infos, or says what is missing."""
