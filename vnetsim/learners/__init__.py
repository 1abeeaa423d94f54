"""The learners as part of vnetsim: ``from vnetsim.learners.cdl import Cdl``.

Users may have a folder called ``learners``; this name always means ours.
"""

from vnetsim.own_packages import stand_for

stand_for("learners")
