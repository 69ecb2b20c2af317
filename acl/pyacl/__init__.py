"""How pyACL's functions take and give Python values, and live beside CANN's own module."""
