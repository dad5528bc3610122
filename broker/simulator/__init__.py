"""Runs the production wiring against simulated sites in virtual time. No decisions here."""
