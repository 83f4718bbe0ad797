"""Measure Farandole against its peers and against the limit, launch by launch."""
