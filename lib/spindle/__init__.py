"""Spindle, a batch web crawler: four Spark jobs turn over a URL table in Delta Lake."""

__version__ = "0.1.0"
