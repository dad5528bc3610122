"""Files of attempts where agent and jobs share no disk: carried over HTTPS, both ways."""
