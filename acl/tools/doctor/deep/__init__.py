"""`aclpool doctor --deep`: tests that need a real device, and a report for the developers.

A test is called a *question*.  Each question runs in its own process.  If it hangs, crashes or is refused, that is its
answer, and the next question runs.
"""
