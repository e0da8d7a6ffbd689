"""Share trees of other schedulers, understood as budgets: Slurm, YARN's fair scheduler, Kueue, KAI.

Each format has one module that turns text into a ``Tree``: branches with weights and the lines they come from, and notes on what
cannot be said in budgets. ``tree`` makes shares of the weights and events of the shares; ``formats`` tells the formats apart. All
are pure functions of the text; who publishes the events is the command line.

Decisions
---------
*A weight becomes parts per million of the parent,* by largest remainder over all siblings, so that siblings add up to the whole
exactly. What Kueue and KAI guarantee (a quota of GPUs) says more about who is entitled to what than their weight for borrowing
does, so quotas decide wherever siblings state any, unless ``--by weight`` is asked for.

*XML is read with expat itself,* which knows lines; a document type or an entity declaration is refused before it can expand.
*YAML is composed with PyYAML's safe loader,* never constructed: no tag makes an object, and an alias is refused, as no queue
needs one and a few lines of them can stand for gigabytes. Templates (Jinja, Go) are refused: what they would become is not known.
"""
