"""Finding operations that some ranks have submitted and others have not, and saying who and where.

Every rank that has waited a while writes what for on a page that the ranks of its host read.
"""
