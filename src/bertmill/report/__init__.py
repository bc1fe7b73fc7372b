"""Reports of trainings: one self-contained HTML file for a run, or for several to compare."""
