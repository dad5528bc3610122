"""`tradewind bench`: measure this build on made-up problems."""
