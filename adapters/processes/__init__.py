"""What every process of ours has: ``home`` (the directory it lives in), ``build`` (whose kernels it runs), ``collector``
(paused where much is made), ``ending`` (how it ends within a bound when it is told to).
"""
