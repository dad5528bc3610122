"""The handshake of broker and agent: one pure state machine for both halves.

`frames` says what is said, `values` what is known, `machine` holds the one table and `step`;
`broker_half` and `agent_half` are its handlers. A shell reads frames and clocks, calls `take`,
and does what comes back, in order.
"""
