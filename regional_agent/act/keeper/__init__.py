"""The keeper: a small process of its own that forks the jobs of one host, outliving the agent.

`python -m regional_agent.act.keeper --state DIR`. It uses the standard library and
`federation.runs` only, listens on no port but a Unix socket of its own user, and is one thread
around `select`; a few more only wait for the disk. Read in this order: `records.py` (what is
durable), `attempt.py` (what the records mean), `runner.py` (fork, watch, kill, reap), `loop.py`
(one turn: change, sync, act, answer), `server.py` (the socket), `client.py` (the agent's side).

**Never twice.** A task's intent is on disk before its fork; its process waits until its pid is
written, too, and exits unrun if the keeper dies before that. A keeper that finds an intent whose
end it did not see reports the task as lost and never starts it again.
"""
