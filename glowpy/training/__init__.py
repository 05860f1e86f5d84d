"""Training: functions that compute gradients and change variables by them."""
