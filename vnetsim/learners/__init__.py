"""The learners, under a name that is right wherever the user stands: ``from vnetsim.learners.cdl import Cdl``.

Modules of this package are those of ``learners``, which users may have a folder of the name of.
"""

from vnetsim.own_packages import stand_for

stand_for("learners")
