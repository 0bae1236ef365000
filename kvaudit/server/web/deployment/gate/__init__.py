"""May a node of this deployment take traffic?"""
