"""Operators of the domain `ai.onnx.ml`: what converters of scikit-learn, XGBoost and LightGBM write into files.

Models are read as products, searches and element-wise work on matrices with a row for each example; trees are an
operator of their own. Where the standard leaves something open, it is as onnxruntime has it.
"""

from __future__ import annotations

from glowpy.importer.onnx.ml import categories, features, linear, svm, trees

__all__ = ["FAMILIES"]

FAMILIES = (categories, features, linear, svm, trees)
"""The modules, whose import functions are registered when they are imported."""
