"""What a person reads: ``render`` turns values and rows into text, ``template`` numbers into sentences, and ``wording`` has the
sentences of all reasons.

Pure functions; pages, pictures, the command line and messages all take their text from here, so one value or reason never
reads two ways.
"""
