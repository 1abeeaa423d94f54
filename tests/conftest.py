"""What all tests share."""

import os

import hypothesis

# how long an example takes says more of the machine's other work than of the code
hypothesis.settings.register_profile("no deadline", deadline=None)
hypothesis.settings.load_profile("no deadline")

# as vnetsim does before it loads torch: threads that spin starve the simulators that other tests run
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
