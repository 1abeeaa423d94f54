"""Studies: arms under conditions at seeds, every arm on the same recorded traffic.

An arm is what is compared: a learner with its settings, other settings, or both. A condition is everything else that a
study varies: scenario, traffic, partition of the data. The random streams of a run depend only on its seed. At one seed
and condition, all arms therefore have the same silos, radio and initial weights.

The steps of a study::

    request      a study file, or the arguments of vnetsim compare  ->  tables
    levels       tables  ->  arms and conditions (each a label and settings), multiplied by the grid
    expansion    arms under conditions  ->  the complete experiment of every cell, or a one-line error
    plan         the cells and their traffic; a hash of everything that decides its result names a cell's folder
    runner       the folder of the comparison: finds missing cells, runs them, writes the record
    traffic      recorded once for all cells that replay it; chooses one RSU for all if none is named
    bench        benchmark tracks: a frozen study, an arm and its baseline; checks received rows
    workers      run the cells in this process, in several, or on a Ray cluster (workers_ray); show progress
    cells        runs or resumes one cell, like any single run

``analysis.comparison`` reads the folder afterwards.
"""
