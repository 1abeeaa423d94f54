"""The analysis as part of vnetsim: ``from vnetsim.analysis.loading import load``.

Users may have a folder called ``analysis``; this name always means ours.
"""

from vnetsim.own_packages import stand_for

stand_for("analysis")
