#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "sidereal/base/status.h"
#include "sidereal/tensor/tensor.h"

/// Parts of tensors: which indices of a whole tensor a variable, or a piece of a file, has.
namespace sidereal::ckpt {

/// Indices along one dimension: start, start + step, ..., `count` of them. The step is 1 but for
/// parts whose rows are dealt out in turn.
struct Range {
  int64_t start = 0;
  int64_t count = 0;
  int64_t step = 1;

  friend bool operator==(const Range& a, const Range& b) = default;
};

/// A range for each dimension of the whole tensor; none of a scalar. Its elements are those where
/// all ranges meet, in row-major order.
using Slice = std::vector<Range>;

/// All of a tensor of that shape.
Slice whole_slice(const tensor::Shape& shape);
bool is_whole(const Slice& slice, const tensor::Shape& whole);
/// The shape of a tensor that has the slice's elements.
tensor::Shape shape_of(const Slice& slice);
/// kInvalidArgument unless the slice lies in a tensor of shape `whole`, whose elements can be
/// counted.
Status check_slice(const Slice& slice, const tensor::Shape& whole);

/// A slice and the shape of the tensor that it is a part of.
struct SliceOfShape {
  tensor::Shape whole;
  Slice slice;
};

/// Reads "EXTENTS SLICES": the extents of the whole tensor and a blank after each, then for each
/// dimension, with ':' between them, '-' (all), "START,COUNT" or "START,COUNT,STEP". "8 4 0,4:-"
/// are rows 0 to 3 of [8,4]. kInvalidArgument for other texts, and for what check_slice() refuses.
Result<SliceOfShape> parse_slice(std::string_view text);
/// The reverse.
std::string format_slice(const Slice& slice, const tensor::Shape& whole);

/// Elements that follow one another in two slices of a tensor: `count` from the element `from` of
/// the first on, and from the element `to` of the second on.
struct Run {
  int64_t from = 0;
  int64_t to = 0;
  int64_t count = 0;
};

/// Calls `use` for what two slices of one tensor have in common, in the order of `to`, until it
/// returns an error, which is returned. Both slices are checked, for one shape.
Status for_each_run(const Slice& from, const Slice& to, absl::FunctionRef<Status(const Run&)> use);

/// How many elements two slices of one tensor have in common.
int64_t num_common(const Slice& a, const Slice& b);

/// Copies what the slices have in common from the tensor that has the elements of `from_slice` to
/// the one that has those of `to_slice`. Both have one dtype and the shapes of their slices; of
/// strings the views are copied, and what they show is kept. Returns the elements copied.
int64_t copy_common(const Slice& from_slice, const tensor::Tensor& from, const Slice& to_slice,
                    tensor::Tensor* to);

}  // namespace sidereal::ckpt
