"""The commands, a module for each family of them."""
