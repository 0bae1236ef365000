"""What is audited: deployments, nodes, tenants and their keys, pins, readings and their changes."""
