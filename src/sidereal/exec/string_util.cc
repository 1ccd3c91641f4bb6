#include "sidereal/exec/string_util.h"

#include <fmt/format.h>

#include "sidereal/kernels/elementwise.h"
#include "sidereal/kernels/grid.h"

namespace sidereal::exec {
namespace {

using tensor::Shape;
using tensor::Tensor;

/// Appends the text of elements, `summarize` at each end of a dimension.
class Writer {
 public:
  Writer(const Tensor& x, int64_t summarize, std::string* out)
      : x_(x), summarize_(summarize), out_(*out) {}

  void write() { dimension(0, 0); }

 private:
  void dimension(int d, int64_t from) {
    if (d == x_.shape().rank()) return element(from);
    const int64_t extent = x_.shape().dim(d);
    int64_t step = 1;
    for (int i = d + 1; i < x_.shape().rank(); ++i) step *= x_.shape().dim(i);
    out_ += '[';
    const bool cut = summarize_ >= 0 && extent > 2 * summarize_;
    for (int64_t i = 0; i < extent; ++i) {
      if (i > 0) out_ += ' ';
      if (cut && i == summarize_) {
        out_ += "...";
        i = extent - summarize_ - 1;
        continue;
      }
      dimension(d + 1, from + i * step);
    }
    out_ += ']';
  }

  void element(int64_t at) {
    tensor::visit_dtype<tensor::AllTypes>(x_.dtype(), [&]<class T>() {
      const T value = x_.data<const T>()[at];
      if constexpr (std::is_same_v<T, std::string_view>) {
        fmt::format_to(std::back_inserter(out_), "\"{}\"", value);
      } else if constexpr (std::is_same_v<T, bool>) {
        out_ += value ? "True" : "False";
      } else if constexpr (std::is_integral_v<T>) {
        out_ += std::to_string(value);
      } else {
        fmt::format_to(std::back_inserter(out_), "{}", static_cast<tensor::ComputeType<T>>(value));
      }
    });
  }

  const Tensor& x_;
  int64_t summarize_;
  std::string& out_;
};

}  // namespace

Spread::Spread(const Shape& from, const Shape& to) {
  if (from == to) return;
  if (from.num_elements() == 1) {
    step_ = 0;
    return;
  }
  kernels::Grid grid;
  grid.reset(1);
  std::vector<int64_t> strides(to.rank(), 0);
  int64_t stride = 1;
  for (int i = 1; i <= from.rank(); ++i) {
    if (from.dim(-i) != 1) strides[to.rank() - i] = stride;
    stride *= from.dim(-i);
  }
  for (int d = 0; d < to.rank(); ++d) {
    const std::span<int64_t> offsets = grid.add_dimension(to.dim(d));
    for (size_t i = 0; i < offsets.size(); ++i) {
      offsets[i] = static_cast<int64_t>(i) * strides[d];
    }
  }
  table_.reserve(grid.num_points());
  grid.for_each([this](int64_t offset) { table_.push_back(offset); });
}

Result<Shape> broadcast_inputs(const KernelContext& c, int first, int last) {
  Shape shape = c.input(first).shape();
  for (int i = first + 1; i <= last; ++i) {
    Shape both;
    if (!kernels::broadcast_shape(shape, c.input(i).shape(), &both)) {
      return base::invalid_argument("shapes {} and {} do not broadcast", shape.to_string(),
                                    c.input(i).shape().to_string());
    }
    shape = both;
  }
  return shape;
}

std::string text_of(const Tensor& x, int64_t summarize) {
  std::string out;
  Writer(x, summarize, &out).write();
  return out;
}

void register_string_kernels(KernelTable* table) {
  register_string_number_kernels(table);
  register_string_join_kernels(table);
  register_string_change_kernels(table);
  register_raw_kernels(table);
  register_csv_kernels(table);
  register_example_kernels(table);
}

}  // namespace sidereal::exec
