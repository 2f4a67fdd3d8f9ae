"""Offline jobs on an arq queue."""
