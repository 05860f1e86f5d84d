"""Modules as ONNX files: one module for each family of operators, as the importer has them."""
