"""What all tests share."""

import hypothesis

# how long an example takes says more of the machine's other work than of the code
hypothesis.settings.register_profile("no deadline", deadline=None)
hypothesis.settings.load_profile("no deadline")
