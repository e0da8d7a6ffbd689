"""The node agent: starts what is placed, stops what is to be stopped, reports what it sees.

``agent`` (the loops), ``membership`` (joining, heartbeats), ``leaving`` (its runs stopped, then out of the pool),
``follower`` and ``orders`` (what the decisions order), ``runs``, ``rundir``, ``sessions`` and ``shim`` (the processes and
their supervisors), ``launch`` (what a command is given), ``reports`` and ``outbox`` (what is told, kept until
acknowledged), ``memory`` (what survives a restart), ``gpus`` and ``nvml`` (the hardware), ``logs`` (a run's output),
``main`` (the process).

Decisions
    * One supervisor process per run, not the agent, is the parent of the command: it outlives the agent, and only a
      parent learns an exit status. It is 10 MiB and starts in some tens of milliseconds.
    * The pid is on disk before the command may run; with its start time it names one process for good.
    * Level-triggered: orders are a state folded from DECISIONS, compared with run folders and processes.
    * Linux only: pidfd, /proc, and the subreaper are what makes "all processes of the run are gone" a fact.
    * An agent that is run as a system service must not take its children with it when it is restarted
      (systemd: ``KillMode=process``).
"""
