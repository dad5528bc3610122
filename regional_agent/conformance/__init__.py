"""What every local scheduler must do, as one suite: for tests and for a site's own people."""
