"""The local scheduler of a site with a batch system: what is common to all of them."""
