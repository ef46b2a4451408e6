"""Where bytes live: the disk, and the few durable shapes built on it."""
