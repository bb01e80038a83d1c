"""The whole bundle on one machine: reads template.yaml and runs every function in it."""
