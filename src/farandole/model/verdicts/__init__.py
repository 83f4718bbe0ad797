"""Verdicts: small pure rules, each with its evidence and what to do.

A rule takes what was computed and returns a Verdict, or None where it has nothing to say.
"""
