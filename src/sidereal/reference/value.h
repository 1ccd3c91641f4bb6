#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "sidereal/ir/graph.h"
#include "sidereal/reference/reference.h"

/// What the interpreter's files share.
namespace sidereal::reference::internal {

using ir::DType;
using ir::Node;
using ir::Shape;
using ir::Tensor;

/// A value between nodes: floats as doubles, everything else as int64.
struct Value {
  DType dtype = DType::kInvalid;
  Shape shape;
  std::vector<double> real;
  std::vector<int64_t> integer;

  [[nodiscard]] bool is_real() const {
    return dtype == DType::kFloat32 || dtype == DType::kFloat64;
  }
  [[nodiscard]] int64_t size() const { return shape.num_elements(); }
};

/// A value of zeros.
Value make_value(DType dtype, const Shape& shape);
Result<Value> from_tensor(const Tensor& tensor);
Tensor to_tensor(const Value& value);

/// Row-major strides of `from` seen as `to` by broadcasting: 0 along repeated dimensions.
std::vector<int64_t> broadcast_strides(const Shape& from, const Shape& to);

/// Calls visit(flat index in `shape`, flat index by `strides`) for every element, in order.
template <class Visit>
void for_each_element(const Shape& shape, const std::vector<int64_t>& strides, Visit visit) {
  std::vector<int64_t> at(shape.rank(), 0);
  int64_t other = 0;
  for (int64_t i = 0; i < shape.num_elements(); ++i) {
    visit(i, other);
    for (int d = shape.rank() - 1; d >= 0; --d) {
      other += strides[d];
      if (++at[d] < shape.dim(d)) break;
      other -= strides[d] * at[d];
      at[d] = 0;
    }
  }
}

/// What one node's function sees.
struct Call {
  const ir::Graph& graph;
  const Node& node;
  const Request& request;
  std::vector<const Value*> inputs;
  std::vector<Value>* outputs;

  [[nodiscard]] const Value& in(size_t i) const { return *inputs[i]; }
  Value& add_output(DType dtype, const Shape& shape) const {
    return outputs->emplace_back(make_value(dtype, shape));
  }
};

using Function = Status (*)(const Call&);
using Functions = std::map<std::string, Function, std::less<>>;

void add_elementwise(Functions* functions);
void add_structure(Functions* functions);
void add_tables(Functions* functions);

}  // namespace sidereal::reference::internal
