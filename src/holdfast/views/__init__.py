"""What people read: every view is rendered from a `Picture`, and can be deleted at any time."""
