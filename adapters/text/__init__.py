"""What a person reads: ``render`` turns values and rows into text, ``wording`` reasons into sentences with their numbers.

Pure functions; pages, pictures, the command line and messages all take their text from here, so one value or reason never
reads two ways.
"""
