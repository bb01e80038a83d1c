"""A report as people and machines read it: HTML, Markdown, JUnit XML. Pure: the same report makes the same text."""
