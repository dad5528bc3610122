"""Pure: the agent's half of the conversation, its reservation ledger, degraded mode."""
