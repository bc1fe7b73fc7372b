"""Reports of runs: one self-contained HTML file for one run, or to compare several."""
