"""What is silently wrong with a distributed script: checks over what the recorder wrote.

`facts` reads a launch, `check` has the registry, five modules have the checks by theme, `run` makes
the launches of a diagnosis and `text` says what was found.
"""
