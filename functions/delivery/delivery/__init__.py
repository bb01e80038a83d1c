"""Minute pulse: send due wake-ups. Queue: call webhooks, publish storage events."""
