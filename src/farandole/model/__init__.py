"""What a study computes: pure arithmetic on records, no input or output, no engine.

`farandole.model.analyse` has the way in, `analyse`, and what it returns, `ScalingInfo`.
"""
