"""The plan of the time to come: batch work as uninterrupted blocks around the curves of real-time services.

``instance`` says what is to be planned, ``planner`` makes a ``plan``, ``check`` tells what is wrong with one, without sharing a
line with the planner. Pure: the same instance and number of candidates give the same plan, byte for byte, on every machine.

Decisions
- Work gets certain GPUs, services get numbers. A service's GPUs are wherever blocks leave holes, so what the cap bounds is the
change
  of its number; when a block starts where a service was, the service moves within what it holds, and that is not counted.
- A job is worth its GPU-steps inside the horizon only. Were all of it counted, each plan would push long jobs to its last step,
  where they cost nothing, and the next plan again.
- A job that falls due within the horizon (``latest`` before its end) is a condition, not a value: no price of others outweighs it.
"""
