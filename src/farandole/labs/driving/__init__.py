"""The driving lab: a data set too small to scale, and from which size on workers would pay."""
