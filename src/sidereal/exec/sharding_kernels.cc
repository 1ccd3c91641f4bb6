#include <vector>

#include "sidereal/exec/kernel_util.h"
#include "sidereal/kernels/shard_layout.h"
#include "sidereal/kernels/sparse.h"

namespace sidereal::exec {
namespace {

using base::invalid_argument;
using tensor::DType;
using tensor::Shape;
using tensor::Tensor;

class UniqueKernel final : public Kernel {
 public:
  Status run(KernelContext& c) override {
    SR_RETURN_IF_ERROR(check_dtype(c, 0, DType::kInt64));
    const std::span<const int64_t> ids = c.in<int64_t>(0);
    const auto n = static_cast<int64_t>(ids.size());
    Tensor& inverse = c.output(1, Shape{n});
    Tensor& unique = c.output(0, Shape{n});
    const int64_t found = kernels::unique(ids, scratch_, unique.data<int64_t>().data(),
                                          inverse.data<int32_t>().data());
    c.set_output(0, unique.rows(0, found));
    return {};
  }

 private:
  kernels::UniqueScratch scratch_;
};

Result<std::unique_ptr<Kernel>> make_unique_kernel(const BindContext&) {
  return std::unique_ptr<Kernel>(std::make_unique<UniqueKernel>());
}

/// unique -> rows of each shard, then the position of each unique id.
class RouteKernel final : public Kernel {
 public:
  explicit RouteKernel(kernels::ShardLayout layout)
      : layout_(std::move(layout)), offsets_(layout_.num_shards() + 1) {}

  Status run(KernelContext& c) override {
    SR_RETURN_IF_ERROR(check_dtype(c, 0, DType::kInt64));
    const std::span<const int64_t> ids = c.in<int64_t>(0);
    const auto n = static_cast<int64_t>(ids.size());
    const int shards = layout_.num_shards();
    Tensor& position = c.output(shards, Shape{n});
    // All shards' rows lie in one array; the outputs are views of it.
    const Tensor rows = c.temporary(DType::kInt64, Shape{n});
    const int64_t bad = kernels::route(ids, layout_, rows.data<int64_t>().data(), offsets_.data(),
                                       position.data<int64_t>().data());
    if (bad >= 0) {
      return base::out_of_range("id {} is outside the table's {} rows", ids[bad], layout_.rows());
    }
    for (int s = 0; s < shards; ++s) {
      c.set_output(s, rows.rows(offsets_[s], offsets_[s + 1] - offsets_[s]));
    }
    return {};
  }

 private:
  kernels::ShardLayout layout_;
  std::vector<int64_t> offsets_;
};

Result<std::unique_ptr<Kernel>> make_route_kernel(const BindContext& bind) {
  const ir::AttrMap& attrs = bind.instruction.attrs;
  SR_ASSIGN_OR_RETURN(const int64_t rows, ir::get_attr<int64_t>(attrs, "rows"));
  SR_ASSIGN_OR_RETURN(const std::vector<int64_t> lanes,
                      ir::get_attr<std::vector<int64_t>>(attrs, "lanes"));
  constexpr int64_t kRowsMax = int64_t{1} << 40;
  constexpr int64_t kLanesMax = 1 << 16;
  if (rows < 0 || rows >= kRowsMax || lanes.empty()) {
    return invalid_argument("a table of {} rows over {} tasks", rows, lanes.size());
  }
  std::vector<int32_t> counts;
  size_t shards = 0;
  for (const int64_t n : lanes) {
    if (n < 1 || n > kLanesMax) return invalid_argument("a task with {} lanes", n);
    counts.push_back(static_cast<int32_t>(n));
    shards += n;
  }
  if (bind.instruction.outputs.size() != shards + 1) {
    return invalid_argument("{} outputs for {} shards", bind.instruction.outputs.size(), shards);
  }
  return std::unique_ptr<Kernel>(std::make_unique<RouteKernel>(kernels::ShardLayout(rows, counts)));
}

/// (ids, position, inverse, part...) -> rows in the order of ids.
class GatherPartsKernel final : public Kernel {
 public:
  explicit GatherPartsKernel(int64_t dim) : dim_(dim) {}

  Status run(KernelContext& c) override {
    parts_.clear();
    for (int i = 3; i < c.num_inputs(); ++i) {
      const Shape& shape = c.input(i).shape();
      if (shape.rank() != 2 || shape.dim(1) != dim_) {
        return invalid_argument("part {} must be [rows, {}]", i - 3, dim_);
      }
      parts_.push_back(c.in<float>(i).data());
    }
    Shape shape = c.input(0).shape();
    shape.append(dim_);
    Tensor& out = c.output(0, shape);
    kernels::gather_parts<float>(parts_, c.in<int64_t>(1), c.in<int32_t>(2), dim_,
                                 out.data<float>().data());
    return {};
  }

 private:
  int64_t dim_;
  std::vector<const float*> parts_;
};

/// (grads, position, inverse, rows...) -> summed gradients of each shard's rows.
class SumPartsKernel final : public Kernel {
 public:
  explicit SumPartsKernel(int64_t dim) : dim_(dim) {}

  Status run(KernelContext& c) override {
    const std::span<const int32_t> inverse = c.in<int32_t>(2);
    const Tensor& grads = c.input(0);
    if (grads.num_elements() != static_cast<int64_t>(inverse.size()) * dim_) {
      return invalid_argument("gradients {} for {} ids of {}", grads.to_string(), inverse.size(),
                              dim_);
    }
    parts_.clear();
    for (int s = 0; s < c.num_outputs(); ++s) {
      Tensor& part = c.output(s, Shape{c.input(3 + s).num_elements(), dim_});
      parts_.push_back(part.data<float>().data());
    }
    kernels::sum_parts<float>(c.in<float>(0).data(), c.in<int64_t>(1), inverse, dim_, parts_);
    return {};
  }

 private:
  int64_t dim_;
  std::vector<float*> parts_;
};

template <class K>
Result<std::unique_ptr<Kernel>> make_parts_kernel(const BindContext& bind) {
  SR_ASSIGN_OR_RETURN(const int64_t dim, ir::get_attr<int64_t>(bind.instruction.attrs, "dim"));
  if (dim < 1) return invalid_argument("dim {} must be positive", dim);
  if constexpr (std::is_same_v<K, SumPartsKernel>) {
    if (bind.instruction.inputs.size() != 3 + bind.instruction.outputs.size()) {
      return invalid_argument("one rows input per output is needed");
    }
  }
  return std::unique_ptr<Kernel>(std::make_unique<K>(dim));
}

}  // namespace

void register_sharding_kernels(KernelTable* table) {
  table->add("Unique",
             with_arity(1, 1, 2, with_outputs({DType::kInt64, DType::kInt32}, make_unique_kernel)));
  table->add("Route", with_arity(1, 1, -1, with_outputs({DType::kInt64}, make_route_kernel)));
  table->add(
      "GatherParts",
      with_arity(4, -1, 1, with_outputs({DType::kFloat32}, make_parts_kernel<GatherPartsKernel>)));
  table->add(
      "SumParts",
      with_arity(3, -1, -1, with_outputs({DType::kFloat32}, make_parts_kernel<SumPartsKernel>)));
}

}  // namespace sidereal::exec
