"""Tickets for the vendor: a port and its adapters."""
