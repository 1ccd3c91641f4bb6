#include "sidereal/train/clip.h"

#include "sidereal/ops/ops.h"

namespace sidereal::train {

using ir::DType;
using ir::Output;

namespace {

Output put(ir::Builder& b, Output made, const std::string& device) {
  if (made.valid()) b.graph().mutable_node(made.node).device = device;
  return made;
}

Output as(ir::Builder& b, Output x, DType dtype) {
  return b.spec(x).dtype == dtype ? x : ops::cast(b, x, dtype);
}

/// The root of the sum of the squares of all numbers.
Output norm_of(ir::Builder& b, const std::vector<GradientPart>& parts) {
  std::vector<Output> squares;
  for (const GradientPart& part : parts) {
    const Output square = put(b, ops::square(b, part.value), part.device);
    const Output sum = put(b, ops::reduce_sum(b, square), part.device);
    squares.push_back(put(b, as(b, sum, DType::kFloat32), part.device));
  }
  return ops::sqrt(b, squares.size() > 1 ? ops::add_n(b, squares) : squares[0], "gradient_norm");
}

/// Multiplies by limit / max(norm, limit).
void shrink(ir::Builder& b, double limit, Output norm, std::vector<GradientPart>* parts) {
  const Output most = ops::scalar(b, DType::kFloat32, limit, "clip_norm");
  const Output ratio = ops::div(b, most, ops::maximum(b, norm, most), "clip_ratio");
  for (GradientPart& part : *parts) {
    const Output own = as(b, ratio, b.spec(part.value).dtype);
    part.value = put(b, ops::mul(b, part.value, own, "clipped"), part.device);
  }
}

void limit_values(ir::Builder& b, double limit, std::vector<GradientPart>* parts) {
  for (GradientPart& part : *parts) {
    const DType dtype = b.spec(part.value).dtype;
    const Output most = ops::scalar(b, dtype, limit, "clip_value");
    const Output least = ops::scalar(b, dtype, -limit, "clip_value");
    const Output below = put(b, ops::minimum(b, part.value, most), part.device);
    part.value = put(b, ops::maximum(b, below, least, "clipped"), part.device);
  }
}

}  // namespace

void clip(ir::Builder& b, const Clipping& how, std::vector<std::vector<GradientPart>>* gradients) {
  if (how.global_norm != 0) {
    std::vector<GradientPart> all;
    for (const auto& parts : *gradients) all.insert(all.end(), parts.begin(), parts.end());
    const Output norm = norm_of(b, all);
    for (auto& parts : *gradients) shrink(b, how.global_norm, norm, &parts);
    return;
  }
  for (auto& parts : *gradients) {
    if (how.norm != 0) shrink(b, how.norm, norm_of(b, parts), &parts);
    if (how.value != 0) limit_values(b, how.value, &parts);
  }
}

}  // namespace sidereal::train
