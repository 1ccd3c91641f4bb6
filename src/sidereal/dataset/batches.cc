#include <algorithm>
#include <cstring>
#include <deque>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "sidereal/dataset/internal/stage.h"
#include "sidereal/ir/schema.h"
#include "sidereal/tensor/strings.h"

namespace sidereal::dataset {
namespace {

using base::invalid_argument;
using tensor::Buffer;
using tensor::DType;
using tensor::Shape;

/// Memory for a tensor whose size comes from a dataset.
Result<Tensor> new_tensor(DType dtype, const Shape& shape) {
  SR_RETURN_IF_ERROR(ir::check_shape(shape));
  const size_t bytes = static_cast<size_t>(shape.num_elements()) * tensor::size_of(dtype);
  Buffer::Ptr buffer = Buffer::try_allocate(bytes);
  if (buffer != nullptr) return Tensor(dtype, shape, std::move(buffer));
  return base::resource_exhausted("there is no memory for a batch of {} bytes, {}{}", bytes,
                                  tensor::name_of(dtype), shape.to_string());
}

Shape with_rows(int64_t rows, const Shape& shape) {
  Shape out{rows};
  for (const int64_t dim : shape.dims()) out.append(dim);
  return out;
}

/// The components number `i` of `elements`, all of one shape, as rows of one tensor.
Result<Tensor> stack(std::span<const Element> elements, size_t i) {
  const Tensor& first = elements[0][i].tensor;
  for (size_t e = 1; e < elements.size(); ++e) {
    const Tensor& other = elements[e][i].tensor;
    if (other.shape() == first.shape()) continue;
    return invalid_argument(
        "Cannot batch tensors with different shapes in component {}. First element had shape {} "
        "and element {} had shape {}; use padded_batch() or ragged_batch()",
        i, first.shape().to_string(), e, other.shape().to_string());
  }
  const Shape shape = with_rows(static_cast<int64_t>(elements.size()), first.shape());
  if (first.dtype() == DType::kString) {
    tensor::StringsBuilder builder;
    for (const Element& element : elements) {
      for (const std::string_view text : element[i].tensor.data<const std::string_view>()) {
        builder.add(text);
      }
    }
    return std::move(builder).finish(shape);
  }
  SR_ASSIGN_OR_RETURN(Tensor out, new_tensor(first.dtype(), shape));
  const size_t bytes = first.nbytes();
  std::byte* to = out.raw();
  for (const Element& element : elements) {
    if (bytes > 0) std::memcpy(to, element[i].tensor.raw(), bytes);
    to += bytes;
  }
  return out;
}

/// Takes `size` elements at a time and makes one of them.
class Collecting : public Stage {
 public:
  Collecting(const DatasetPtr& dataset, StagePtr input, int64_t size, Runtime* runtime)
      : Stage(dataset, runtime),
        input_(std::move(input)),
        size_(size),
        drops_(ir::attr_or(dataset->def().attrs, "drop_remainder", false)) {}

  Result<bool> next(Element* out) final {
    out->clear();
    SR_RETURN_IF_ERROR(collect(input_.get(), size_, &elements_, &ended_));
    const bool is_short = static_cast<int64_t>(elements_.size()) < size_;
    if (elements_.empty() || (is_short && drops_)) {
      elements_.clear();
      return false;
    }
    const std::vector<Element> elements = std::exchange(elements_, {});
    for (size_t i = 0; i < elements[0].size(); ++i) SR_RETURN_IF_ERROR(join(elements, i, out));
    return true;
  }
  Status save(PositionWriter* out) final {
    // Not empty after an error of the input.
    out->put(ended_);
    out->put_all(elements_);
    return input_->save(out);
  }
  Status restore(PositionReader* in) final {
    SR_RETURN_IF_ERROR(in->get(&ended_));
    SR_RETURN_IF_ERROR(in->get_all(&elements_, input()->outputs()));
    return input_->restore(in);
  }

 protected:
  /// Appends what is made of components number `i` of one or more elements.
  virtual Status join(std::span<const Element> elements, size_t i, Element* out) = 0;

 private:
  StagePtr input_;
  int64_t size_;
  bool drops_;
  bool ended_ = false;
  std::vector<Element> elements_;
};

class Batch final : public Collecting {
 public:
  using Collecting::Collecting;

 private:
  Status join(std::span<const Element> elements, size_t i, Element* out) override {
    SR_ASSIGN_OR_RETURN(Tensor joined, stack(elements, i));
    out->push_back({std::move(joined), nullptr});
    return {};
  }
};

/// Components whose first extent differs become all their rows, one behind another, and where those
/// of each begin.
class RaggedBatch final : public Collecting {
 public:
  using Collecting::Collecting;

 private:
  Status join(std::span<const Element> elements, size_t i, Element* out) override {
    const ir::TensorSpec& spec = input()->outputs()[i].spec;
    if (!is_ragged(with_rows(-1, spec.shape))) {
      SR_ASSIGN_OR_RETURN(Tensor joined, stack(elements, i));
      out->push_back({std::move(joined), nullptr});
      return {};
    }
    std::vector<Element> rows;
    std::vector<int64_t> splits = {0};
    for (const Element& element : elements) {
      const Tensor& tensor = element[i].tensor;
      const Shape shape(tensor.shape().dims().subspan(1));
      for (int64_t r = 0; r < tensor.shape().dim(0); ++r) {
        rows.push_back({{tensor.rows(r, 1).reshaped(shape), nullptr}});
      }
      splits.push_back(static_cast<int64_t>(rows.size()));
    }
    Tensor values;
    if (rows.empty()) {
      Shape none{0};
      for (const int64_t dim : spec.shape.dims().subspan(1)) none.append(std::max<int64_t>(0, dim));
      values = Tensor::empty(spec.dtype, none);
    } else {
      SR_ASSIGN_OR_RETURN(values, stack(rows, 0));
    }
    out->push_back({std::move(values), nullptr});
    out->push_back({Tensor::of(Shape{static_cast<int64_t>(splits.size())}, splits), nullptr});
    return {};
  }
};

/// Copies a block of `shape` into the beginning of one of `into`, elements of `bytes` bytes.
void copy_block(const std::byte* from, std::span<const int64_t> shape, std::byte* to,
                std::span<const int64_t> into, size_t bytes) {
  if (shape.empty()) {
    std::memcpy(to, from, bytes);
    return;
  }
  size_t from_row = bytes;
  size_t to_row = bytes;
  for (const int64_t dim : shape.subspan(1)) from_row *= static_cast<size_t>(dim);
  for (const int64_t dim : into.subspan(1)) to_row *= static_cast<size_t>(dim);
  if (from_row == 0) return;
  if (from_row == to_row) {
    std::memcpy(to, from, from_row * static_cast<size_t>(shape[0]));
    return;
  }
  for (int64_t i = 0; i < shape[0]; ++i) {
    copy_block(from + static_cast<size_t>(i) * from_row, shape.subspan(1),
               to + static_cast<size_t>(i) * to_row, into.subspan(1), bytes);
  }
}

class PaddedBatch final : public Collecting {
 public:
  using Collecting::Collecting;

 private:
  Status join(std::span<const Element> elements, size_t i, Element* out) override {
    SR_ASSIGN_OR_RETURN(Tensor padded, pad(elements, i));
    out->push_back({std::move(padded), nullptr});
    return {};
  }

  Result<Tensor> pad(std::span<const Element> elements, size_t i) {
    SR_ASSIGN_OR_RETURN(const std::vector<int64_t> wanted, numbers_of(dataset(), 1 + 2 * i));
    Shape padded;
    for (size_t d = 0; d < wanted.size(); ++d) {
      int64_t most = 0;
      for (const Element& element : elements) {
        const Shape& shape = element[i].tensor.shape();
        if (shape.rank() != static_cast<int>(wanted.size())) {
          return invalid_argument("component {} has shape {}; it is padded to {} extents", i,
                                  shape.to_string(), wanted.size());
        }
        most = std::max(most, shape.dim(static_cast<int>(d)));
      }
      if (wanted[d] >= 0 && most > wanted[d]) {
        return invalid_argument(
            "component {} has {} in dimension {}, which is padded to {}; elements cannot be cut", i,
            most, d, wanted[d]);
      }
      padded.append(wanted[d] < 0 ? most : wanted[d]);
    }
    const Tensor& value = dataset().def().parameters[2 + 2 * i].value;
    SR_ASSIGN_OR_RETURN(
        Tensor out,
        new_tensor(value.dtype(), with_rows(static_cast<int64_t>(elements.size()), padded)));
    const size_t bytes = tensor::size_of(value.dtype());
    for (int64_t e = 0; e < out.num_elements(); ++e) {
      std::memcpy(out.raw() + static_cast<size_t>(e) * bytes, value.raw(), bytes);
    }
    const size_t row = bytes * static_cast<size_t>(padded.num_elements());
    for (size_t e = 0; e < elements.size(); ++e) {
      const Tensor& tensor = elements[e][i].tensor;
      copy_block(tensor.raw(), tensor.shape().dims(), out.raw() + e * row, padded.dims(), bytes);
    }
    // Of strings these are views: a copy has the bytes too.
    return value.dtype() == DType::kString ? out.clone() : out;
  }
};

/// Gives out the rows of its input's elements.
class Unbatch final : public Stage {
 public:
  Unbatch(DatasetPtr dataset, StagePtr input, Runtime* runtime)
      : Stage(std::move(dataset), runtime), input_(std::move(input)) {}

  Result<bool> next(Element* out) override {
    out->clear();
    while (at_ >= rows_) {
      SR_RETURN_IF_ERROR(check_stopped());
      at_ = rows_ = 0;
      SR_ASSIGN_OR_RETURN(const bool some, input_->next(&element_));
      if (!some) return false;
      SR_RETURN_IF_ERROR(count_rows());
    }
    for (const Component& component : element_) {
      const Tensor row = component.tensor.rows(at_, 1);
      out->push_back({row.reshaped(Shape(row.shape().dims().subspan(1))), nullptr});
    }
    ++at_;
    return true;
  }
  Status save(PositionWriter* out) override {
    const bool some = at_ < rows_;
    out->put(some);
    if (some) {
      out->put(at_);
      out->put(element_);
    }
    return input_->save(out);
  }
  Status restore(PositionReader* in) override {
    bool some = false;
    SR_RETURN_IF_ERROR(in->get(&some));
    if (some) {
      int64_t at = 0;
      SR_RETURN_IF_ERROR(in->get_number(&at));
      SR_RETURN_IF_ERROR(in->get(&element_, input()->outputs()));
      SR_RETURN_IF_ERROR(count_rows());
      at_ = at;
    }
    return input_->restore(in);
  }

 private:
  Status count_rows() {
    for (size_t i = 0; i < element_.size(); ++i) {
      const Shape& shape = element_[i].tensor.shape();
      if (shape.rank() > 0 && (i == 0 || shape.dim(0) == rows_)) {
        rows_ = shape.dim(0);
        continue;
      }
      rows_ = 0;
      return invalid_argument("unbatch: component {} has shape {}; all must have as many rows", i,
                              shape.to_string());
    }
    return {};
  }

  StagePtr input_;
  Element element_;
  int64_t at_ = 0;
  int64_t rows_ = 0;
};

/// Elements as lists, of `size` elements of the input each, of which every `stride`-th is taken;
/// a list begins `shift` elements after the one before it.
class Window final : public Stage {
 public:
  struct Sizes {
    int64_t size;
    int64_t shift;
    int64_t stride;
  };
  Window(const DatasetPtr& dataset, StagePtr input, Sizes sizes, Runtime* runtime)
      : Stage(dataset, runtime),
        input_(std::move(input)),
        sizes_(sizes),
        span_((sizes.size - 1) * sizes.stride + 1),
        drops_(ir::attr_or(dataset->def().attrs, "drop_remainder", false)) {}

  Result<bool> next(Element* out) override {
    out->clear();
    if (to_skip_ > 0 && !ended_) {
      const int64_t count = std::exchange(to_skip_, 0);
      SR_ASSIGN_OR_RETURN(const int64_t skipped, input_->skip(count));
      ended_ = skipped < count;
    }
    SR_RETURN_IF_ERROR(collect(input_.get(), span_, &elements_, &ended_));
    const auto have = static_cast<int64_t>(elements_.size());
    if (have == 0 || (drops_ && have < span_)) return false;
    for (size_t i = 0; i < specs().size(); ++i) {
      auto list = std::make_shared<std::vector<Tensor>>();
      for (int64_t e = 0; e < std::min(have, span_); e += sizes_.stride) {
        list->push_back(elements_[static_cast<size_t>(e)][i].tensor);
      }
      out->push_back({Tensor(), std::move(list)});
    }
    const int64_t gone = std::min(sizes_.shift, have);
    elements_.erase(elements_.begin(), elements_.begin() + gone);
    to_skip_ = sizes_.shift - gone;
    return true;
  }
  Status save(PositionWriter* out) override {
    out->put(ended_);
    out->put(to_skip_);
    out->put_all(elements_);
    return input_->save(out);
  }
  Status restore(PositionReader* in) override {
    SR_RETURN_IF_ERROR(in->get(&ended_));
    SR_RETURN_IF_ERROR(in->get_number(&to_skip_, sizes_.shift));
    SR_RETURN_IF_ERROR(in->get_all(&elements_, input()->outputs()));
    return input_->restore(in);
  }

 private:
  StagePtr input_;
  Sizes sizes_;
  int64_t span_;  // Elements from the first to the last of a list.
  bool drops_;
  bool ended_ = false;
  int64_t to_skip_ = 0;
  std::deque<Element> elements_;
};

Result<StagePtr> make_window(const DatasetPtr& dataset, StagePtr input, Runtime* runtime) {
  Window::Sizes sizes{};
  SR_ASSIGN_OR_RETURN(sizes.size, number_of(*dataset, 0));
  SR_ASSIGN_OR_RETURN(sizes.shift, number_of(*dataset, 1));
  SR_ASSIGN_OR_RETURN(sizes.stride, number_of(*dataset, 2));
  if (sizes.size < 1 || sizes.shift < 1 || sizes.stride < 1 ||
      sizes.size > ir::kMaxElements / sizes.stride) {
    return invalid_argument("window: size is {}, shift {} and stride {}; they must be positive",
                            sizes.size, sizes.shift, sizes.stride);
  }
  return std::make_unique<Window>(dataset, std::move(input), sizes, runtime);
}

}  // namespace

Result<StagePtr> make_batches(const DatasetPtr& dataset, StagePtr input, Runtime* runtime) {
  if (dataset->op() == "Unbatch") {
    return std::make_unique<Unbatch>(dataset, std::move(input), runtime);
  }
  if (dataset->op() == "Window") return make_window(dataset, std::move(input), runtime);
  SR_ASSIGN_OR_RETURN(const int64_t size, number_of(*dataset, 0));
  if (size < 1) return invalid_argument("batch: batch_size is {}; it must be positive", size);
  if (dataset->op() == "Batch") {
    return std::make_unique<Batch>(dataset, std::move(input), size, runtime);
  }
  if (dataset->op() == "RaggedBatch") {
    return std::make_unique<RaggedBatch>(dataset, std::move(input), size, runtime);
  }
  return std::make_unique<PaddedBatch>(dataset, std::move(input), size, runtime);
}

}  // namespace sidereal::dataset
