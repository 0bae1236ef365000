"""What results say of a deployment over time: intervals, status, history."""
