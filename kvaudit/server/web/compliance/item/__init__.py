"""One item of the checklist for one deployment or team."""
