"""`aclpool doctor --deep`: questions that only a device answers, each in a process of its own, and a report to send in.

A question that hangs, crashes or is refused answers itself by that; the others are asked all the same.
"""
