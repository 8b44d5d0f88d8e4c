"""Every table of a report and of the terminal, as rows of text."""
