"""What people look at: charts, the page, the terminal."""
