"""Reports: one self-contained HTML file that shows a run or compares several."""
