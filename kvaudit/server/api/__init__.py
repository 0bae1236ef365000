"""The REST API: thin doors to the services and querysets of the apps below."""
