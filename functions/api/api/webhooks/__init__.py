"""Webhooks: endpoints that are told what happens, and what they were told."""
