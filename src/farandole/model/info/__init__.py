"""What `analyse` finds, as frozen records that the report draws and tabulates.

None stands for "not measured" and is never to be shown as 0. Times are in seconds, rates per
second, shares between 0 and 1. An Estimate without `low` and `high` comes from one launch only.
"""
