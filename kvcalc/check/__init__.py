"""What comes of a launch line: whether it fits, what its engine refuses, what to change in it."""
