"""The auditor: reads, asks, judges and reports. A library of its own, without Django; imports nothing by itself.

Its front door is `kvaudit.auditor.api`.
"""
