"""What runs and when: the Prefect flows, their deployments, and the command line."""
