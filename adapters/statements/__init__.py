"""A budget's account on paper: ``statement`` (a period, line by line), ``words`` (how it reads), ``page`` (to print),
``versions`` (what a bill was known to be, and is), ``burndown`` (day by day, and when it runs dry).

Pure functions of rows of the projection, each of which refuses what does not add up. Nothing here decides or looks anything up.
"""
