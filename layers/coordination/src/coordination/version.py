"""The bundle's version, as healthz and the OpenAPI document show it."""

# A built layer holds the code without its package metadata, so the version stands here; a test compares the two.
VERSION = "0.1.0"
