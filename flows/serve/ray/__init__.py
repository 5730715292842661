"""The service as an application of Ray Serve: `serve run flows.serve.ray:application`."""

from flows.serve.ray.deployments import application

__all__ = ["application"]
