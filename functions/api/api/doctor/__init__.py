"""The doctor: checks of what nobody looks at while it works."""
