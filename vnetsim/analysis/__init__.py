"""The analysis, under a name that is right wherever the user stands: ``from vnetsim.analysis.loading import load``.

Modules of this package are those of ``analysis``, which users may have a folder of the name of.
"""

from vnetsim.own_packages import stand_for

stand_for("analysis")
