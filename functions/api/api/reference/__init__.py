"""What the API says of itself: health, OpenAPI document, documentation page."""
