"""Replay as proof: every decision of a part of the log derived again, on all processors, and a document that says so.

``waypoints`` finds the states that a proof may be cut at, ``stretch`` proves what lies between two of them (in a process of its
own), ``proof`` puts the stretches together, ``document`` says what was proved, ``signature`` signs that and ``holding`` tells
whether a log still has what a document speaks of.

Why stretches proved side by side prove the whole: each begins at a state that somebody kept, or that was made ahead by trusting
the stored decisions. What is derived from it ends in a state, and that state's digest must be the one the next stretch began
with. So every state but the first is proved by the stretch before it, and only the first is taken on trust; none is where the
proof begins with the first record.

Nothing here writes a log or a snapshot.
"""
