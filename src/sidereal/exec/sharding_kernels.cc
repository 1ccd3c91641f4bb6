#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "sidereal/exec/array_util.h"
#include "sidereal/exec/kernel_util.h"
#include "sidereal/ir/schema.h"
#include "sidereal/kernels/shard_layout.h"
#include "sidereal/kernels/sparse.h"

namespace sidereal::exec {
namespace {

using base::invalid_argument;
using tensor::DType;
using tensor::Shape;
using tensor::Tensor;

/// What the attribute `strict` says of negative ids.
kernels::NegativeIds negative_ids(const BindContext& bind) {
  return ir::attr_or(bind.instruction.attrs, "strict", false) ? kernels::NegativeIds::kIds
                                                              : kernels::NegativeIds::kNone;
}

class UniqueKernel final : public Kernel {
 public:
  explicit UniqueKernel(kernels::NegativeIds negative) : negative_(negative) {}

  Status run(KernelContext& c) override {
    SR_RETURN_IF_ERROR(check_dtype(c, 0, DType::kInt64));
    const std::span<const int64_t> ids = c.in<int64_t>(0);
    const auto n = static_cast<int64_t>(ids.size());
    Tensor& inverse = c.output(1, Shape{n});
    Tensor& unique = c.output(0, Shape{n});
    const int64_t found = kernels::unique(ids, scratch_, unique.data<int64_t>().data(),
                                          inverse.data<int32_t>().data(), negative_);
    c.set_output(0, unique.rows(0, found));
    return {};
  }

 private:
  kernels::NegativeIds negative_;
  kernels::UniqueScratch scratch_;
};

Result<std::unique_ptr<Kernel>> make_unique_kernel(const BindContext& bind) {
  return std::unique_ptr<Kernel>(std::make_unique<UniqueKernel>(negative_ids(bind)));
}

/// unique -> rows of each shard, then the position of each unique id.
class RouteKernel final : public Kernel {
 public:
  RouteKernel(kernels::ShardLayout layout, std::string name)
      : layout_(std::move(layout)), name_(std::move(name)), offsets_(layout_.num_shards() + 1) {}

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
      return base::invalid_argument("table '{}': id {} is outside the table's {} rows", name_,
                                    ids[bad], layout_.rows());
    }
    for (int s = 0; s < shards; ++s) {
      c.set_output(s, rows.rows(offsets_[s], offsets_[s + 1] - offsets_[s]));
    }
    return {};
  }

 private:
  kernels::ShardLayout layout_;
  std::string name_;
  std::vector<int64_t> offsets_;
};

/// The number of shards of each table over tasks of `lanes` lanes.
Result<size_t> num_shards(const std::vector<int64_t>& lanes) {
  constexpr int64_t kLanesMax = 1 << 16;
  constexpr size_t kShardsMax = size_t{1} << 20;
  size_t shards = 0;
  for (const int64_t n : lanes) {
    if (n < 1 || n > kLanesMax) return invalid_argument("a task with {} lanes", n);
    shards += static_cast<size_t>(n);
  }
  if (shards >= 1 && shards <= kShardsMax) return shards;
  return invalid_argument("{} shards over {} tasks", shards, lanes.size());
}

/// A table of `rows` rows over tasks of `lanes` lanes, which num_shards() took.
Result<kernels::ShardLayout> shard_layout(int64_t rows, const std::vector<int64_t>& lanes) {
  constexpr int64_t kRowsMax = int64_t{1} << 40;
  if (rows < 0 || rows >= kRowsMax) return invalid_argument("a table of {} rows", rows);
  return kernels::ShardLayout(rows, std::vector<int32_t>(lanes.begin(), lanes.end()));
}

Result<std::unique_ptr<Kernel>> make_route_kernel(const BindContext& bind) {
  const ir::AttrMap& attrs = bind.instruction.attrs;
  SR_ASSIGN_OR_RETURN(const int64_t rows, ir::get_attr<int64_t>(attrs, "rows"));
  SR_ASSIGN_OR_RETURN(const std::vector<int64_t> lanes,
                      ir::get_attr<std::vector<int64_t>>(attrs, "lanes"));
  SR_ASSIGN_OR_RETURN(const size_t shards, num_shards(lanes));
  if (bind.instruction.outputs.size() != shards + 1) {
    return invalid_argument("{} outputs for {} shards", bind.instruction.outputs.size(), shards);
  }
  SR_ASSIGN_OR_RETURN(kernels::ShardLayout layout, shard_layout(rows, lanes));
  return std::unique_ptr<Kernel>(
      std::make_unique<RouteKernel>(std::move(layout), ir::attr_or<std::string>(attrs, "var", "")));
}

/// (ids...) -> places of the ids by input, then by table the rows of each shard and positions.
class UniqueRouteKernel final : public Kernel {
 public:
  struct Table {
    size_t input = 0;  // Which ids are its own.
    kernels::ShardLayout layout;
    std::string name;
  };
  /// In the order of the tables; those of one input need not be neighbours.
  UniqueRouteKernel(std::vector<Table> tables, kernels::NegativeIds negative)
      : tables_(std::move(tables)), negative_(negative) {
    offsets_.resize(tables_[0].layout.num_shards() + 1);
  }

  Status run(KernelContext& c) override {
    for (int i = 0; i < c.num_inputs(); ++i) {
      SR_RETURN_IF_ERROR(check_dtype(c, i, DType::kInt64));
      const std::span<const int64_t> ids = c.in<int64_t>(i);
      unique_.resize(std::max(unique_.size(), ids.size()));
      Tensor& inverse = c.output(i, Shape{static_cast<int64_t>(ids.size())});
      const int64_t found =
          kernels::unique(ids, scratch_, unique_.data(), inverse.data<int32_t>().data(), negative_);
      const std::span<const int64_t> unique(unique_.data(), static_cast<size_t>(found));
      // While the ids are in the cache.
      for (size_t t = 0; t < tables_.size(); ++t) {
        if (tables_[t].input == static_cast<size_t>(i)) SR_RETURN_IF_ERROR(route(c, t, unique));
      }
    }
    return {};
  }

 private:
  Status route(KernelContext& c, size_t t, std::span<const int64_t> ids) {
    const kernels::ShardLayout& layout = tables_[t].layout;
    const auto n = static_cast<int64_t>(ids.size());
    const int shards = layout.num_shards();
    const int first = c.num_inputs() + static_cast<int>(t) * (shards + 1);
    Tensor& position = c.output(first + shards, Shape{n});
    const Tensor rows = c.temporary(DType::kInt64, Shape{n});
    const int64_t bad = kernels::route(ids, layout, rows.data<int64_t>().data(), offsets_.data(),
                                       position.data<int64_t>().data());
    if (bad >= 0) {
      return base::invalid_argument("table '{}': id {} is outside the table's {} rows",
                                    tables_[t].name, ids[bad], layout.rows());
    }
    for (int s = 0; s < shards; ++s) {
      c.set_output(first + s, rows.rows(offsets_[s], offsets_[s + 1] - offsets_[s]));
    }
    return {};
  }

  std::vector<Table> tables_;
  kernels::NegativeIds negative_;
  kernels::UniqueScratch scratch_;
  std::vector<int64_t> unique_;
  std::vector<int64_t> offsets_;
};

/// Places of ids are int32, all else is int64.
Status check_unique_route_outputs(const BindContext& bind) {
  const program::Instruction& instruction = bind.instruction;
  for (size_t o = 0; o < instruction.outputs.size(); ++o) {
    const bool is_place = o < instruction.inputs.size();
    SR_RETURN_IF_ERROR(check_slot(bind, instruction.outputs[o],
                                  is_place ? DType::kInt32 : DType::kInt64, "an output"));
  }
  return {};
}

Result<std::unique_ptr<Kernel>> make_unique_route_kernel(const BindContext& bind) {
  const ir::AttrMap& attrs = bind.instruction.attrs;
  using Ints = std::vector<int64_t>;
  SR_ASSIGN_OR_RETURN(const Ints of, ir::get_attr<Ints>(attrs, "of"));
  SR_ASSIGN_OR_RETURN(const Ints rows, ir::get_attr<Ints>(attrs, "rows"));
  SR_ASSIGN_OR_RETURN(const Ints lanes, ir::get_attr<Ints>(attrs, "lanes"));
  const auto names = ir::attr_or<std::vector<std::string>>(attrs, "vars", {});
  const size_t inputs = bind.instruction.inputs.size();
  if (of.empty() || of.size() != rows.size()) {
    return invalid_argument("{} tables of {} sizes", of.size(), rows.size());
  }
  SR_ASSIGN_OR_RETURN(const size_t shards, num_shards(lanes));
  if (bind.instruction.outputs.size() != inputs + of.size() * (shards + 1)) {
    return invalid_argument("{} outputs for {} tables of {} shards",
                            bind.instruction.outputs.size(), of.size(), shards);
  }
  SR_RETURN_IF_ERROR(check_unique_route_outputs(bind));
  std::vector<UniqueRouteKernel::Table> tables;
  for (size_t t = 0; t < of.size(); ++t) {
    if (of[t] < 0 || of[t] >= static_cast<int64_t>(inputs)) {
      return invalid_argument("ids {} of {}", of[t], inputs);
    }
    SR_ASSIGN_OR_RETURN(kernels::ShardLayout layout, shard_layout(rows[t], lanes));
    tables.push_back({static_cast<size_t>(of[t]), std::move(layout),
                      t < names.size() ? names[t] : std::string()});
  }
  return std::unique_ptr<Kernel>(
      std::make_unique<UniqueRouteKernel>(std::move(tables), negative_ids(bind)));
}

/// (ids, position, inverse, part...) -> rows in the order of ids.
class GatherPartsKernel final : public Kernel {
 public:
  explicit GatherPartsKernel(int64_t dim) : dim_(dim) {}

  Status run(KernelContext& c) override {
    parts_.clear();
    rows_.clear();
    for (int i = 3; i < c.num_inputs(); ++i) {
      const Shape& shape = c.input(i).shape();
      if (shape.rank() != 2 || shape.dim(1) != dim_) {
        return invalid_argument("part {} must be [rows, {}]", i - 3, dim_);
      }
      parts_.push_back(c.in<float>(i).data());
      rows_.push_back(shape.dim(0));
    }
    if (c.input(0).num_elements() != c.input(2).num_elements()) {
      return invalid_argument("{} places for {} ids", c.input(2).num_elements(),
                              c.input(0).num_elements());
    }
    SR_RETURN_IF_ERROR(
        check_places(c.in<int64_t>(1), c.in<int32_t>(2), Places::kAny, rows_, next_));
    Shape shape = c.input(0).shape();
    shape.append(dim_);
    SR_ASSIGN_OR_RETURN(Tensor* const out, large_output(c, 0, shape));
    kernels::gather_parts<float>(parts_, c.in<int64_t>(1), c.in<int32_t>(2), dim_,
                                 out->data<float>().data());
    return {};
  }

 private:
  int64_t dim_;
  std::vector<const float*> parts_;
  std::vector<int64_t> rows_;  // Of each part.
  std::vector<int64_t> next_;
};

/// (grads, position, inverse, rows...) -> summed gradients of each shard's rows.
class SumPartsKernel final : public Kernel {
 public:
  /// `column`, `width`: where in the rows of grads those of `dim` are.
  SumPartsKernel(int64_t dim, int64_t column, int64_t width)
      : dim_(dim), column_(column), width_(width) {}

  Status run(KernelContext& c) override {
    const std::span<const int32_t> inverse = c.in<int32_t>(2);
    const Tensor& grads = c.input(0);
    if (grads.num_elements() != static_cast<int64_t>(inverse.size()) * width_) {
      return invalid_argument("gradients {} for {} ids of {}", grads.to_string(), inverse.size(),
                              width_);
    }
    rows_.clear();
    for (int s = 0; s < c.num_outputs(); ++s) rows_.push_back(c.input(3 + s).num_elements());
    SR_RETURN_IF_ERROR(
        check_places(c.in<int64_t>(1), inverse, Places::kFirstInOrder, rows_, next_));
    parts_.clear();
    for (int s = 0; s < c.num_outputs(); ++s) {
      SR_ASSIGN_OR_RETURN(Tensor* const part, large_output(c, s, Shape{rows_[s], dim_}));
      parts_.push_back(part->data<float>().data());
    }
    kernels::sum_parts<float>(c.in<float>(0).data() + column_, width_, c.in<int64_t>(1), inverse,
                              dim_, parts_);
    return {};
  }

 private:
  int64_t dim_;
  int64_t column_;
  int64_t width_;
  std::vector<float*> parts_;
  std::vector<int64_t> rows_;  // Of each part.
  std::vector<int64_t> next_;
};

Result<int64_t> dim_of(const BindContext& bind) {
  SR_ASSIGN_OR_RETURN(const int64_t dim, ir::get_attr<int64_t>(bind.instruction.attrs, "dim"));
  if (dim < 1 || dim > ir::kMaxElements) {
    return invalid_argument("dim {} must be positive, and at most {}", dim, ir::kMaxElements);
  }
  return dim;
}

/// Inputs 1 and 2 are positions and places; what has rows, a `gradient` or parts, is float32.
Status check_part_inputs(const BindContext& bind, bool gradient) {
  const std::vector<int32_t>& inputs = bind.instruction.inputs;
  SR_RETURN_IF_ERROR(check_slot(bind, inputs[1], DType::kInt64, "the positions"));
  SR_RETURN_IF_ERROR(check_slot(bind, inputs[2], DType::kInt32, "the places of the ids"));
  if (gradient) return check_slot(bind, inputs[0], DType::kFloat32, "the gradient");
  for (size_t i = 3; i < inputs.size(); ++i) {
    SR_RETURN_IF_ERROR(check_slot(bind, inputs[i], DType::kFloat32, "a part"));
  }
  return {};
}

Result<std::unique_ptr<Kernel>> make_gather_parts(const BindContext& bind) {
  SR_ASSIGN_OR_RETURN(const int64_t dim, dim_of(bind));
  SR_RETURN_IF_ERROR(check_part_inputs(bind, false));
  return std::unique_ptr<Kernel>(std::make_unique<GatherPartsKernel>(dim));
}

Result<std::unique_ptr<Kernel>> make_sum_parts(const BindContext& bind) {
  SR_ASSIGN_OR_RETURN(const int64_t dim, dim_of(bind));
  const auto column = ir::attr_or<int64_t>(bind.instruction.attrs, "column", 0);
  const auto width = ir::attr_or<int64_t>(bind.instruction.attrs, "width", dim);
  if (width < dim || width > ir::kMaxElements || column < 0 || column > width - dim) {
    return invalid_argument("gradients of {} from column {} of rows of {}", dim, column, width);
  }
  if (bind.instruction.inputs.size() != 3 + bind.instruction.outputs.size()) {
    return invalid_argument("one rows input per output is needed");
  }
  SR_RETURN_IF_ERROR(check_part_inputs(bind, true));
  return std::unique_ptr<Kernel>(std::make_unique<SumPartsKernel>(dim, column, width));
}

}  // namespace

void register_sharding_kernels(KernelTable* table) {
  table->add("Unique",
             with_arity(1, 1, 2, with_outputs({DType::kInt64, DType::kInt32}, make_unique_kernel)));
  table->add("Route", with_arity(1, 1, -1, with_outputs({DType::kInt64}, make_route_kernel)));
  table->add("UniqueRoute", with_arity(1, -1, -1, make_unique_route_kernel));
  table->add("GatherParts",
             with_arity(4, -1, 1, with_outputs({DType::kFloat32}, make_gather_parts)));
  table->add("SumParts", with_arity(3, -1, -1, with_outputs({DType::kFloat32}, make_sum_parts)));
}

}  // namespace sidereal::exec
