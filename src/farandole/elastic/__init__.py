"""Elastic training: workers die, hosts come and go, and training goes on.

The launcher forms *generations*: sets of workers that train together, each with its ranks. A worker
process keeps running from one generation to the next.
"""
