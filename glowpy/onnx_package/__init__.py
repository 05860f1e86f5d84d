"""Parts of the onnx package that are used as they are: its networks, its evaluator, its converter."""
