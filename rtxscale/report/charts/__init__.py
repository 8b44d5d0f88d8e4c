"""Every chart of a report, and how all of them look and leave as pictures."""
