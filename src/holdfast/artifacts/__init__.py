"""What goes into a task and what comes out: files and values, how they are judged, kept and read back."""
