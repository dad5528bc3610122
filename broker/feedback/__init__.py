"""What comes back: ledger of ended jobs, logs and blobs, audit. Ports here, backends below."""
