"""Devices, streams, events, buffers and copies: objects over ACL's handles."""
