"""Transports that are not HTTP requests: each is a courier on `actors/gateway/courier.py`."""
