#pragma once

#include "sidereal/ir/builder.h"
#include "sidereal/ir/function.h"

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

inline Status infer_arg(const InferContext& c) {
  SR_ASSIGN_OR_RETURN(const DType dtype, get_attr<DType>(c.attrs, "dtype"));
  SR_ASSIGN_OR_RETURN(const Shape shape, get_attr<Shape>(c.attrs, "shape"));
  c.outputs->push_back({dtype, shape});
  return {};
}

inline Status infer_run(const InferContext& c) {
  SR_ASSIGN_OR_RETURN(const std::string name, get_attr<std::string>(c.attrs, "function"));
  const FunctionPtr function = c.graph.find_function(name);
  if (function->num_inputs() != c.inputs.size()) return base::invalid_argument("inputs");
  for (size_t i = 0; i < function->num_outputs(); ++i) c.outputs->push_back(function->output(i));
  return {};
}

inline Status infer_none(const InferContext& /*c*/) { return {}; }

/// "Source" {shape}, "Pair" (x, y) -> (x, int64[]), "Anything" with an attribute of each type, and
/// "Touch" {shared_name}, stateful, without outputs; "Arg", and "Run" {function}.
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
           .doc = "Changes a resource.",
           .attrs = {{"shared_name", "string", true, ""}},
           .infer = infer_none,
           .stateful = true});
  out.add({.name = "Arg",
           .doc = "An input of a function.",
           .attrs = {{"index", "int", true, ""},
                     {"dtype", "dtype", true, ""},
                     {"shape", "shape", true, ""}},
           .infer = infer_arg});
  out.add({.name = "Run",
           .doc = "Calls a function.",
           .max_inputs = -1,
           .attrs = {{"function", "function", true, ""}},
           .infer = infer_run});
  return out;
}

}  // namespace sidereal::ir::testing
