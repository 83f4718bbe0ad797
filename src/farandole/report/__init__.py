"""What a study says, drawn and tabulated: nothing here computes.

`study.py` has the page, the Markdown, the terminal's lines and the JSON of studies.
"""
