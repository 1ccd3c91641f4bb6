#pragma once

#include "sidereal/ir/builder.h"

/// A few schemas for the tests of this module, which cannot use the real ones.
namespace sidereal::ir::testing {

inline Status infer_source(const InferContext& c) {
  SR_ASSIGN_OR_RETURN(const Shape shape, get_attr<Shape>(c.attrs, "shape"));
  c.outputs->push_back({DType::kFloat32, shape});
  return {};
}

inline Status infer_pair(const InferContext& c) {
  if (!(c.inputs[0].shape == c.inputs[1].shape)) {
    return base::invalid_argument("the shapes differ");
  }
  c.outputs->push_back(c.inputs[0]);
  c.outputs->push_back({DType::kInt64, Shape()});
  return {};
}

inline Status infer_none(const InferContext& /*c*/) { return {}; }

/// "Source" {shape}, "Pair" (x, y) -> (x, int64[]), "Anything" with an attribute of each type, and
/// "Touch" {var}, stateful, without outputs.
inline OpRegistry registry() {
  OpRegistry out;
  out.add({.name = "Source",
           .doc = "A value.",
           .attrs = {{"shape", "shape", true, ""}},
           .infer = infer_source});
  out.add({.name = "Pair", .doc = "Two.", .min_inputs = 2, .max_inputs = 2, .infer = infer_pair});
  OpSchema anything{.name = "Anything", .doc = "All kinds.", .max_inputs = -1, .infer = infer_none};
  for (const char* type : {"bool", "int", "float", "string", "dtype", "shape", "ints", "floats",
                           "strings", "tensor"}) {
    for (const char* suffix : {"", "2", "3"}) {
      anything.attrs.push_back({std::string(type) + "_attr" + suffix, type, false, ""});
    }
  }
  out.add(std::move(anything));
  out.add({.name = "Touch",
           .doc = "Uses a variable.",
           .attrs = {{"var", "string", true, ""}},
           .infer = infer_none,
           .stateful = true});
  return out;
}

}  // namespace sidereal::ir::testing
