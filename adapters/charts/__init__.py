"""Pictures for people: ``plan`` and ``gantt`` (a plan, drawn and in columns of text), ``services`` (a service's day),
``burndown`` (a budget's balance), all on a ``sheet``; ``svg`` draws the lines of the others, in rooms of their own, and
``waits`` the axes of their waiting times.

Pure functions of rows that somebody else has read. A picture is one self-contained SVG, readable in light and dark, with its
numbers in words for screen readers.
"""
