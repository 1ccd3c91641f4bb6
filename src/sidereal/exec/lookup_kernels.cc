#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "sidereal/exec/array_util.h"
#include "sidereal/ir/schema.h"
#include "sidereal/kernels/rows.h"
#include "sidereal/kernels/sparse.h"

/// Lookups in many tables, joined.
namespace sidereal::exec {
namespace {

using base::invalid_argument;
using tensor::DType;
using tensor::Shape;
using tensor::Tensor;

/// What the attributes of a GatherConcat or GatherPartsConcat say.
struct Layout {
  size_t shards = 0;            // Of each table; 0: tables are here.
  std::vector<int64_t> counts;  // By part: rows of its table; 0: a value.
  int axis = 0;
  std::vector<int64_t> shape;  // Of one row of the output.
  int64_t width = 1;           // Its elements.

  /// What part `p` takes: ids, position, inverse and parts; a table and indices; or a value.
  [[nodiscard]] size_t inputs_of(size_t p) const {
    if (counts[p] == 0) return 1;
    return shards > 0 ? 3 + shards : 2;
  }
};

Result<Layout> layout_of(const BindContext& bind, size_t shards) {
  const ir::AttrMap& attrs = bind.instruction.attrs;
  Layout out;
  out.shards = shards;
  SR_ASSIGN_OR_RETURN(out.counts, ir::get_attr<std::vector<int64_t>>(attrs, "counts"));
  SR_ASSIGN_OR_RETURN(out.shape, ir::get_attr<std::vector<int64_t>>(attrs, "shape"));
  SR_ASSIGN_OR_RETURN(const int64_t axis, ir::get_attr<int64_t>(attrs, "axis"));
  if (axis < 0 || axis > ir::kMaxRank - static_cast<int64_t>(out.shape.size())) {
    return invalid_argument("axis {} of rows with {} dimensions", axis, out.shape.size());
  }
  out.axis = static_cast<int>(axis);
  SR_ASSIGN_OR_RETURN(const Shape row, checked_shape(out.shape));
  out.width = row.num_elements();
  size_t inputs = 0;
  for (size_t p = 0; p < out.counts.size(); ++p) {
    const int64_t count = out.counts[p];
    if (count < 0 || count > ir::kMaxElements) return invalid_argument("a part has {} rows", count);
    inputs += out.inputs_of(p);
  }
  if (inputs == 0 || inputs != bind.instruction.inputs.size()) {
    return invalid_argument("the counts ask for {} inputs, not {}", inputs,
                            bind.instruction.inputs.size());
  }
  return out;
}

class GatherConcat final : public Kernel {
 public:
  explicit GatherConcat(Layout layout)
      : layout_(std::move(layout)),
        wide_(layout_.counts.size()),
        places_(layout_.counts.size()),
        parts_(layout_.counts.size()) {}

  Status run(KernelContext& c) override {
    lead_ = Shape::unknown_rank();
    width_ = 0;
    int input = 0;
    for (size_t p = 0; p < parts_.size(); ++p) {
      const Status status = find_part(c, input, p);
      if (!status.ok()) return base::with_context(status, fmt::format("part {}", p));
      input += static_cast<int>(layout_.inputs_of(p));
    }
    if (width_ != layout_.width) {
      return invalid_argument("rows of {} elements are to become {}", width_, layout_.width);
    }
    Shape shape = lead_;
    for (const int64_t extent : layout_.shape) shape.append(extent);
    SR_ASSIGN_OR_RETURN(Tensor* const out, large_output(c, 0, shape));
    if (out->nbytes() == 0) return {};
    const int64_t bytes = width_ * bytes_of(*out);
    c.parallel(lead_.num_elements(), kGrainBytes / bytes + 1, [&](int64_t begin, int64_t end) {
      kernels::join_rows(parts_, begin, end, out->raw() + begin * bytes);
    });
    return {};
  }

 private:
  /// The dimensions in front of a row, which all parts have.
  Status take_lead(const Shape& shape) {
    const int axis = layout_.axis;
    bool fits = shape.rank() >= axis;
    for (int i = 0; fits && lead_.has_rank() && i < axis; ++i) fits = lead_.dim(i) == shape.dim(i);
    if (!fits) {
      return invalid_argument("shape {} does not begin with the {} dimensions of {}",
                              shape.to_string(), axis, lead_.to_string());
    }
    if (lead_.has_rank()) return {};
    lead_ = Shape();
    for (int i = 0; i < axis; ++i) lead_.append(shape.dim(i));
    return {};
  }

  Status add_width(int64_t rows, int64_t width) {
    if (rows > 0 && width > ir::kMaxElements / rows) {
      return invalid_argument("{} rows of {} elements", rows, width);
    }
    width_ += rows * width;
    if (width_ <= layout_.width) return {};
    return invalid_argument("it ends at element {} of rows of {}", width_, layout_.width);
  }

  Status find_part(KernelContext& c, int i, size_t p) {
    if (layout_.counts[p] == 0) return find_value(c, i, p);
    return layout_.shards > 0 ? find_places(c, i, p) : find_rows(c, i, p);
  }

  /// Checks the shape of the indices of part `p`.
  Status take_ids(const Shape& ids, size_t p) {
    SR_RETURN_IF_ERROR(take_lead(ids));
    const int64_t each = product_of(ids, layout_.axis, ids.rank());
    if (each == layout_.counts[p]) return {};
    return invalid_argument("{} indices for {} rows", each, layout_.counts[p]);
  }

  /// `count` rows of the parts of a table: ids at input `i`, position, inverse, parts.
  Status find_places(KernelContext& c, int i, size_t p) {
    SR_RETURN_IF_ERROR(take_ids(c.input(i).shape(), p));
    SR_RETURN_IF_ERROR(check_dtype(c, i + 1, DType::kInt64));
    SR_RETURN_IF_ERROR(check_dtype(c, i + 2, DType::kInt32));
    const std::span<const int32_t> inverse = c.in<int32_t>(i + 2);
    if (c.input(i).num_elements() != static_cast<int64_t>(inverse.size())) {
      return invalid_argument("places of {} ids for {}", inverse.size(), c.input(i).to_string());
    }
    const int first = i + 3;
    table_.clear();
    rows_.clear();
    for (int s = first; s < first + static_cast<int>(layout_.shards); ++s) {
      SR_RETURN_IF_ERROR(check_dtype(c, s, DType::kFloat32));
      SR_RETURN_IF_ERROR(check_rank(c, s, 2));
      if (c.input(s).shape().dim(1) != c.input(first).shape().dim(1)) {
        return invalid_argument("parts {} and {} of one table", c.input(first).to_string(),
                                c.input(s).to_string());
      }
      table_.push_back(c.in<float>(s).data());
      rows_.push_back(c.input(s).shape().dim(0));
    }
    SR_RETURN_IF_ERROR(check_places(c.in<int64_t>(i + 1), inverse, Places::kAny, rows_, next_));
    const int64_t dim = c.input(first).shape().dim(1);
    SR_RETURN_IF_ERROR(add_width(layout_.counts[p], dim));
    if (static_cast<int64_t>(zeros_.size()) < dim) zeros_.resize(dim);
    places_[p].resize(std::max(places_[p].size(), inverse.size()));
    kernels::find_in_parts(table_, c.in<int64_t>(i + 1), inverse, dim, zeros_.data(), places_[p]);
    parts_[p] = {.places = places_[p].data(),
                 .count = layout_.counts[p],
                 .row_bytes = dim * static_cast<int64_t>(sizeof(float))};
    return {};
  }

  /// `count` rows of the table at input `i`.
  Status find_rows(KernelContext& c, int i, size_t p) {
    const Tensor& table = c.input(i);
    const Tensor& ids = c.input(i + 1);
    const int64_t count = layout_.counts[p];
    const bool rounds = table.dtype() != c.output_dtype(0);
    if (rounds && (table.dtype() != DType::kFloat32 || c.output_dtype(0) != DType::kBFloat16)) {
      return invalid_argument("rows of {} among {}", tensor::name_of(table.dtype()),
                              tensor::name_of(c.output_dtype(0)));
    }
    if (table.shape().rank() < 1) return invalid_argument("a scalar has no rows");
    SR_RETURN_IF_ERROR(take_ids(ids.shape(), p));
    const int64_t width = product_of(table.shape(), 1, table.shape().rank());
    SR_RETURN_IF_ERROR(add_width(count, width));
    SR_ASSIGN_OR_RETURN(const int64_t* rows, indices_of(ids, table.shape().dim(0), &wide_[p]));
    parts_[p] = {.from = table.raw(),
                 .rows = rows,
                 .count = count,
                 .row_bytes = width * bytes_of(table),
                 .rounds = rounds};
    return {};
  }

  /// The value at input `i` as it is.
  Status find_value(KernelContext& c, int i, size_t p) {
    const Tensor& value = c.input(i);
    if (value.dtype() != c.output_dtype(0)) {
      return invalid_argument("a value of {} among {}", tensor::name_of(value.dtype()),
                              tensor::name_of(c.output_dtype(0)));
    }
    SR_RETURN_IF_ERROR(take_lead(value.shape()));
    const int64_t width = product_of(value.shape(), layout_.axis, value.shape().rank());
    SR_RETURN_IF_ERROR(add_width(1, width));
    parts_[p] = {.from = value.raw(), .row_bytes = width * bytes_of(value)};
    return {};
  }

  /// The indices as int64, all in [0, extent); `wide` is memory for those that are not.
  static Result<const int64_t*> indices_of(const Tensor& ids, int64_t extent,
                                           std::vector<int64_t>* wide) {
    SR_RETURN_IF_ERROR(with_index(ids.dtype(), [&]<class I>() -> Status {
      const std::span<const I> in = ids.data<const I>();
      const int64_t bad = kernels::first_outside<I>(in, extent, /*skip_negative=*/false);
      if (bad >= 0) {
        return base::invalid_argument("index {} at {} of the indices is not in [0, {})", in[bad],
                                      place_of(bad, ids.shape()), extent);
      }
      if (ids.dtype() == DType::kInt32) wide->assign(in.begin(), in.end());
      return {};
    }));
    return ids.dtype() == DType::kInt32 ? wide->data() : ids.data<const int64_t>().data();
  }

  Layout layout_;
  std::vector<std::vector<int64_t>> wide_;         // By part: its indices, where they are int32.
  std::vector<std::vector<const float*>> places_;  // By part: its rows, where tables are in parts.
  std::vector<float> zeros_;                       // What ids have that have no row.
  std::vector<const float*> table_;                // Its parts,
  std::vector<int64_t> rows_;                      // their rows,
  std::vector<int64_t> next_;                      // and memory for the check of positions.
  std::vector<kernels::JoinedPart> parts_;
  Shape lead_;
  int64_t width_ = 0;
};

Result<std::unique_ptr<Kernel>> gather_concat(const BindContext& bind) {
  if (bind.program.slots[bind.instruction.outputs[0]].dtype == DType::kString) {
    return invalid_argument("rows of strings cannot be joined");
  }
  SR_ASSIGN_OR_RETURN(Layout layout, layout_of(bind, 0));
  return std::unique_ptr<Kernel>(std::make_unique<GatherConcat>(std::move(layout)));
}

Result<std::unique_ptr<Kernel>> gather_parts_concat(const BindContext& bind) {
  SR_ASSIGN_OR_RETURN(const int64_t shards,
                      ir::get_attr<int64_t>(bind.instruction.attrs, "shards"));
  if (shards < 1 || shards > static_cast<int64_t>(bind.instruction.inputs.size())) {
    return invalid_argument("tables of {} shards", shards);
  }
  SR_ASSIGN_OR_RETURN(Layout layout, layout_of(bind, static_cast<size_t>(shards)));
  return std::unique_ptr<Kernel>(std::make_unique<GatherConcat>(std::move(layout)));
}

}  // namespace

void register_lookup_kernels(KernelTable* table) {
  table->add("GatherPartsConcat",
             with_arity(1, -1, 1, with_outputs({DType::kFloat32}, gather_parts_concat)));
  table->add("GatherConcat", with_arity(1, -1, 1, gather_concat));
}

}  // namespace sidereal::exec
