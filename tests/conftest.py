"""What holds for all tests: none judges how long an example took, for machines differ."""

from hypothesis import settings

# What is in force goes on being so: where CI is set, Hypothesis plays the same examples each time.
settings.register_profile("any-machine", settings(), deadline=None)
settings.load_profile("any-machine")
