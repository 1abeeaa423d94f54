"""Studies: arms under conditions at seeds, every arm on the same recorded traffic.

An arm is what is compared: a learner with its settings, settings beside the learner's, or both. A condition is
everything else that a study varies: scenario, traffic, partition of the data. The random streams of a run depend on its
seed alone. At one seed and condition, silos, radio and initial weights are therefore common to all arms.

The way of a study::

    request      a study file, or the arguments of vnetsim compare  ->  tables
    levels       tables  ->  arms and conditions, each a label and settings, multiplied by the grid
    expansion    arms under conditions  ->  every cell's complete experiment, or one line that says what is wrong
    plan         the cells and their traffics; a cell's folder is named by what decides its result
    runner       the folder of the comparison: which cells are missing, who runs them, what the record says
    traffic      recorded once for all cells that replay it; one RSU for all, where nobody names one
    bench        frozen tracks, to which an arm is added beside a baseline; bench_rows: what came out, and was received
    workers      who runs the cells: this process, several, or a Ray cluster (workers_ray); what is shown meanwhile
    cells        one cell, run or resumed as any single run is

``analysis.comparison`` reads the folder afterwards.
"""
