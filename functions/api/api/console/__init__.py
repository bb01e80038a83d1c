"""The console: a web page over the API, for people."""
