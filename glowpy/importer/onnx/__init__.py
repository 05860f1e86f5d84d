"""The ONNX importer: one function for each operator, in modules by family; `registry` imports them all."""
