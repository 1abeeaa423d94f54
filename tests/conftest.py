"""What all tests share."""

import os

import hypothesis

# How long an example takes says more of the machine's other work than of the code. The same examples every time, so
# that a change is to blame when a test fails; VNETSIM_EXPLORE=1 looks for new ones.
hypothesis.settings.register_profile("repeatable", deadline=None, derandomize=True)
hypothesis.settings.register_profile("explore", deadline=None)
hypothesis.settings.load_profile("explore" if os.environ.get("VNETSIM_EXPLORE") else "repeatable")

# as vnetsim does before it loads torch: threads that spin long starve the simulators that other tests run
os.environ.setdefault("GOMP_SPINCOUNT", "20000")
