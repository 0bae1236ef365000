"""Request logs: uploading them, and the requests in the danger zone."""
