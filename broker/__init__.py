"""The central broker: sense -> state -> decide -> act -> feedback. Read `app.py` first."""
