"""The policy ``horizon``: batch work planned over the hours to come, as blocks without a break, around what services will need.

``slots`` lays a pool's GPUs out in one line; ``asking`` makes an instance of the planner (``core.horizon``) of what waits, runs and
is forecast; ``carrying`` makes the plan, publishes it and carries out its present instant; ``telling`` puts it into the decision.
Only step 0 is ever carried out. The plan is made again in each step, and when enough has changed.
"""
