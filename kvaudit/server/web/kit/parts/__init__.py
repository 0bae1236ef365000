"""Parts of pages that several pages show: the pool bar, progress of a run, measures, the timeline."""
