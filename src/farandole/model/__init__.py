"""What a study computes: pure arithmetic on records, no input or output, no engine.

`farandole.model.analyse.analyse` is the way in; `farandole.model.info` has what it returns.
"""
