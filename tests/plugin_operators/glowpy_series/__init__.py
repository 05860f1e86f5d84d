"""Operators for time series, of the ONNX domain `com.example.series`."""
