"""What the agent does at the site: schedulers, the keeper, staging, the journal."""
