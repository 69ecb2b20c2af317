"""What a pool tells about itself: books, tags, recordings, leaks, reports."""
