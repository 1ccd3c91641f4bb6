"""What TensorFlow's module of this name has for variables on parameter servers."""

from ._cluster_variable import cache_variable_reads

__all__ = ["cache_variable_reads"]
