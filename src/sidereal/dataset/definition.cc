#include "sidereal/dataset/definition.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <span>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "sidereal/ir/component_specs.h"
#include "sidereal/ir/schema.h"

namespace sidereal::dataset {
namespace {

using base::invalid_argument;
using tensor::DType;
using tensor::Shape;
using Specs = std::vector<ComponentSpec>;

/// Rows that a reader of files gives at once at most.
constexpr int64_t kBatchMax = int64_t{1} << 30;

/// True when all that `special` may be is within `general`.
bool covers(const ir::TensorSpec& general, const ir::TensorSpec& special) {
  if (general.dtype != special.dtype) return false;
  if (!general.shape.has_rank()) return true;
  if (!special.shape.has_rank() || special.shape.rank() != general.shape.rank()) return false;
  for (int d = 0; d < general.shape.rank(); ++d) {
    if (general.shape.dim(d) >= 0 && general.shape.dim(d) != special.shape.dim(d)) return false;
  }
  return true;
}

/// The shape that accepts what either does.
Shape widened(const Shape& a, const Shape& b) {
  if (!a.has_rank() || !b.has_rank() || a.rank() != b.rank()) return Shape::unknown_rank();
  Shape out = a;
  for (int d = 0; d < out.rank(); ++d) {
    if (a.dim(d) != b.dim(d)) out.set_dim(d, -1);
  }
  return out;
}

/// `shape` with `extent` before it.
Shape with_rows(const Shape& shape, int64_t extent) {
  if (!shape.has_rank()) return shape;
  Shape out{extent};
  for (const int64_t dim : shape.dims()) out.append(dim);
  return out;
}

/// `shape` without its first extent.
Shape row_of(const Shape& shape) {
  return shape.has_rank() ? Shape(shape.dims().subspan(1)) : shape;
}

/// Whether a function runs Python code, or works on what lives in one process, and why.
std::string local_ops(const ir::Graph& body) {
  for (const ir::Node& node : body.nodes()) {
    if (node.op == "HostFunction") {
      return "'" + node.name + "' is Python code, which runs in the process that made it only";
    }
  }
  for (const ir::NamedFunction& inner : body.functions()) {
    std::string found = local_ops(inner.function->body());
    if (!found.empty()) return found;
  }
  return "";
}

/// What inference sees and fills in.
struct Infer {
  const DatasetDef& def;
  Specs* outputs;

  [[nodiscard]] const Specs& input(size_t i = 0) const { return def.inputs[i]->outputs(); }
  [[nodiscard]] const ir::TensorSpec& parameter(size_t i) const { return def.parameters[i].spec; }
};

struct Op {
  int inputs = 0;      ///< -1: any number above 0.
  int parameters = 0;  ///< Of its own; -1: any number above 0.
  int numbers = 0;     ///< The first parameters, which are int64 scalars.
  bool has_function = false;
  bool has_inner = false;
  std::function<Status(const Infer&)> infer;
};

Status no_lists(const Infer& c) {
  for (const ComponentSpec& spec : c.input()) {
    if (!spec.is_list) continue;
    return invalid_argument(
        "elements are windows {}; make tensors of them first, as in "
        "ds.window(n).flat_map(lambda w: w.batch(n))",
        to_string(c.input()));
  }
  return {};
}

Status same_as_input(const Infer& c) {
  *c.outputs = c.input();
  return {};
}

Status parameters_as_they_are(const Infer& c) {
  for (const Parameter& parameter : c.def.parameters) c.outputs->push_back({parameter.spec});
  return {};
}

Status slices(const Infer& c) {
  int64_t rows = -1;
  for (size_t i = 0; i < c.def.parameters.size(); ++i) {
    const ir::TensorSpec& spec = c.parameter(i);
    if (spec.shape.has_rank() && spec.shape.rank() == 0) {
      return invalid_argument("tensor {} is a scalar ({}), which has no rows; use from_tensors()",
                              i, ir::to_string(spec));
    }
    const int64_t extent = spec.shape.has_rank() ? spec.shape.dim(0) : -1;
    if (extent >= 0 && rows >= 0 && extent != rows) {
      return invalid_argument("tensor {} has {} rows, those before it have {}", i, extent, rows);
    }
    if (extent >= 0) rows = extent;
    c.outputs->push_back({{spec.dtype, row_of(spec.shape)}});
  }
  return {};
}

Status range(const Infer& c) {
  SR_ASSIGN_OR_RETURN(const auto dtype, ir::get_attr<DType>(c.def.attrs, "dtype"));
  if (!tensor::is_integer(dtype) && !tensor::is_floating(dtype)) {
    return invalid_argument("a range of {} is not known; use numbers", tensor::name_of(dtype));
  }
  c.outputs->push_back({{dtype, Shape()}});
  return {};
}

Status files(const Infer& c) {
  const ir::TensorSpec& spec = c.parameter(0);
  if (spec.dtype != DType::kString || (spec.shape.has_rank() && spec.shape.rank() > 1)) {
    return invalid_argument("filenames are {}; give a string or a vector of strings",
                            ir::to_string(spec));
  }
  c.outputs->push_back({{DType::kString, Shape()}});
  return {};
}

Status as_attributes_say(const Infer& c) {
  SR_ASSIGN_OR_RETURN(const std::vector<ir::TensorSpec> specs, ir::component_specs(c.def.attrs));
  if (specs.empty()) return invalid_argument("elements have no components");
  for (const ir::TensorSpec& spec : specs) c.outputs->push_back({spec});
  return {};
}

Status rows(const Infer& c) {
  SR_RETURN_IF_ERROR(as_attributes_say(c));
  SR_RETURN_IF_ERROR(ir::get_attr<std::string>(c.def.attrs, "spec").status());
  const auto batch_size = ir::attr_or<int64_t>(c.def.attrs, "batch_size", 1);
  if (batch_size < 1 || batch_size > kBatchMax) {
    return invalid_argument("batch_size is {}; it must be from 1 to {}", batch_size, kBatchMax);
  }
  SR_ASSIGN_OR_RETURN(const auto columns,
                      ir::get_attr<std::vector<std::string>>(c.def.attrs, "columns"));
  if (columns.size() == c.outputs->size()) return {};
  return invalid_argument("{} columns for {} components", columns.size(), c.outputs->size());
}

Status argument(const Infer& c) {
  SR_RETURN_IF_ERROR(as_attributes_say(c));
  SR_ASSIGN_OR_RETURN(const auto index, ir::get_attr<int64_t>(c.def.attrs, "index"));
  if (c.outputs->size() == 1 && index >= 0) return {};
  return invalid_argument("an argument is one component of an element");
}

/// The function's inputs against the components and what it captured.
Status check_function(const Infer& c, size_t first_capture) {
  std::vector<ir::TensorSpec> given;
  for (const ComponentSpec& spec : c.input()) {
    if (!spec.is_list) given.push_back(spec.spec);
  }
  for (size_t i = first_capture; i < c.def.parameters.size(); ++i) given.push_back(c.parameter(i));
  const ir::Function& function = *c.def.function;
  if (given.size() != function.num_inputs()) {
    return invalid_argument("the function takes {} values; it is given {}", function.num_inputs(),
                            given.size());
  }
  for (size_t i = 0; i < given.size(); ++i) {
    if (covers(function.input(i), given[i])) continue;
    return invalid_argument("argument {} of the function is {}; it is given {}", i,
                            ir::to_string(function.input(i)), ir::to_string(given[i]));
  }
  return {};
}

Status map(const Infer& c) {
  SR_RETURN_IF_ERROR(no_lists(c));
  SR_RETURN_IF_ERROR(check_function(c, 0));
  for (size_t i = 0; i < c.def.function->num_outputs(); ++i) {
    c.outputs->push_back({c.def.function->output(i)});
  }
  return c.outputs->empty() ? invalid_argument("the function returns nothing") : Status();
}

Status predicate(const Infer& c) {
  SR_RETURN_IF_ERROR(no_lists(c));
  SR_RETURN_IF_ERROR(check_function(c, 0));
  const ir::Function& function = *c.def.function;
  if (function.num_outputs() != 1 || function.output(0).dtype != DType::kBool ||
      !function.output(0).shape.accepts(Shape())) {
    return invalid_argument(
        "the predicate returns {}; it must be one bool",
        function.num_outputs() == 1 ? ir::to_string(function.output(0)) : "other than one value");
  }
  return same_as_input(c);
}

Status interleave(const Infer& c) {
  SR_RETURN_IF_ERROR(check_function(c, 2));
  *c.outputs = c.def.inner->outputs();
  return {};
}

Status batch(const Infer& c) {
  SR_RETURN_IF_ERROR(no_lists(c));
  const Parameter& size = c.def.parameters[0];
  const bool full = ir::attr_or(c.def.attrs, "drop_remainder", false);
  const int64_t extent = full && size.value.defined() ? size.value.data<const int64_t>()[0] : -1;
  if (size.value.defined() && size.value.data<const int64_t>()[0] < 1) {
    return invalid_argument("batch_size is {}; it must be positive",
                            size.value.data<const int64_t>()[0]);
  }
  for (const ComponentSpec& spec : c.input()) {
    c.outputs->push_back({{spec.spec.dtype, with_rows(spec.spec.shape, extent)}});
  }
  return {};
}

Status ragged_batch(const Infer& c) {
  SR_RETURN_IF_ERROR(batch(c));
  Specs out;
  for (const ComponentSpec& rows : *c.outputs) {
    const Shape& shape = rows.spec.shape;
    if (!shape.has_rank()) {
      return invalid_argument("elements of {} have no known rank", to_string(c.input()));
    }
    if (!is_ragged(shape)) {
      out.push_back(rows);
      continue;
    }
    // All rows one behind another, and where each begins.
    Shape values{-1};
    for (const int64_t dim : shape.dims().subspan(2)) values.append(dim);
    const int64_t splits = shape.dim(0) < 0 ? -1 : shape.dim(0) + 1;
    out.push_back({{rows.spec.dtype, values}});
    out.push_back({{DType::kInt64, Shape{splits}}});
  }
  *c.outputs = std::move(out);
  return {};
}

Status padded_batch(const Infer& c) {
  SR_RETURN_IF_ERROR(batch(c));
  if (c.def.parameters.size() != 1 + 2 * c.input().size()) {
    return invalid_argument("{} parameters for {} components", c.def.parameters.size(),
                            c.input().size());
  }
  for (size_t i = 0; i < c.input().size(); ++i) {
    const ir::TensorSpec& shape = c.parameter(1 + 2 * i);
    const ir::TensorSpec& value = c.parameter(2 + 2 * i);
    ir::TensorSpec& output = (*c.outputs)[i].spec;
    if (shape.dtype != DType::kInt64 || !shape.shape.is_fully_defined() ||
        shape.shape.rank() != 1 || shape.shape.dim(0) >= ir::kMaxRank) {
      return invalid_argument("padded shape {} is {}; it must be an int64 vector", i,
                              ir::to_string(shape));
    }
    if (value.dtype != output.dtype || !value.shape.accepts(Shape())) {
      return invalid_argument("padding value {} is {}; it must be a scalar {}", i,
                              ir::to_string(value), tensor::name_of(output.dtype));
    }
    const ir::TensorSpec& element = c.input()[i].spec;
    if (element.shape.has_rank() && element.shape.rank() != shape.shape.dim(0)) {
      return invalid_argument("padded shape {} has {} extents for elements of {}", i,
                              shape.shape.dim(0), ir::to_string(element));
    }
    Shape padded{output.shape.has_rank() ? output.shape.dim(0) : -1};
    const Tensor& extents = c.def.parameters[1 + 2 * i].value;
    for (int64_t d = 0; d < shape.shape.dim(0); ++d) {
      const int64_t extent = extents.defined() ? extents.data<const int64_t>()[d] : -1;
      padded.append(extent < 0 ? -1 : extent);
    }
    SR_RETURN_IF_ERROR(ir::check_shape(padded));
    output.shape = padded;
  }
  return {};
}

Status unbatch(const Infer& c) {
  SR_RETURN_IF_ERROR(no_lists(c));
  for (const ComponentSpec& spec : c.input()) {
    const Shape& shape = spec.spec.shape;
    if (shape.has_rank() && shape.rank() == 0) {
      return invalid_argument("elements of {} have no rows", to_string(c.input()));
    }
    c.outputs->push_back({{spec.spec.dtype, row_of(shape)}});
  }
  return {};
}

Status zip(const Infer& c) {
  for (const DatasetPtr& input : c.def.inputs) {
    c.outputs->insert(c.outputs->end(), input->outputs().begin(), input->outputs().end());
  }
  return {};
}

Status concatenate(const Infer& c) {
  const Specs& a = c.input(0);
  const Specs& b = c.input(1);
  const auto like = [](const ComponentSpec& x, const ComponentSpec& y) {
    return x.is_list == y.is_list && x.spec.dtype == y.spec.dtype;
  };
  if (!std::equal(a.begin(), a.end(), b.begin(), b.end(), like)) {
    return invalid_argument("elements of {} cannot follow elements of {}", to_string(b),
                            to_string(a));
  }
  for (size_t i = 0; i < a.size(); ++i) {
    c.outputs->push_back(
        {{a[i].spec.dtype, widened(a[i].spec.shape, b[i].spec.shape)}, a[i].is_list});
  }
  return {};
}

Status cache_file(const Infer& c) {
  const ir::TensorSpec& spec = c.parameter(0);
  if (spec.dtype != DType::kString || !spec.shape.accepts(Shape())) {
    return invalid_argument("filename is {}; give a string", ir::to_string(spec));
  }
  return same_as_input(c);
}

Status window(const Infer& c) {
  SR_RETURN_IF_ERROR(no_lists(c));
  for (const ComponentSpec& spec : c.input()) c.outputs->push_back({spec.spec, true});
  return {};
}

/// The ops. Parameters in their order:
const absl::flat_hash_map<std::string, Op>& ops() {
  static const auto* const table = new absl::flat_hash_map<std::string, Op>{
      // Sources.
      {"Tensors", {.parameters = -1, .infer = parameters_as_they_are}},
      {"TensorSlices", {.parameters = -1, .infer = slices}},
      {"Range", {.parameters = 3, .numbers = 3, .infer = range}},  // start, stop, step
      {"TextLines", {.parameters = 1, .infer = files}},            // filenames
      {"Records", {.parameters = 1, .infer = files}},              // filenames
      {"Rows", {.infer = rows}},
      {"Generator", {.infer = as_attributes_say}},
      {"Argument", {.infer = argument}},
      // Of elements.
      {"Map", {.inputs = 1, .has_function = true, .infer = map}},
      {"Filter", {.inputs = 1, .has_function = true, .infer = predicate}},
      {"TakeWhile", {.inputs = 1, .has_function = true, .infer = predicate}},
      // cycle_length, block_length
      {"Interleave",
       {.inputs = 1,
        .parameters = 2,
        .numbers = 2,
        .has_function = true,
        .has_inner = true,
        .infer = interleave}},
      {"Batch", {.inputs = 1, .parameters = 1, .numbers = 1, .infer = batch}},  // batch_size
      // batch_size, then a shape and a value for each component
      {"PaddedBatch", {.inputs = 1, .parameters = -1, .numbers = 1, .infer = padded_batch}},
      {"RaggedBatch", {.inputs = 1, .parameters = 1, .numbers = 1, .infer = ragged_batch}},
      {"Unbatch", {.inputs = 1, .infer = unbatch}},
      // size, shift, stride
      {"Window", {.inputs = 1, .parameters = 3, .numbers = 3, .infer = window}},
      // Of their order and number.
      {"Shuffle", {.inputs = 1, .parameters = 1, .numbers = 1, .infer = same_as_input}},
      {"Repeat", {.inputs = 1, .parameters = 1, .numbers = 1, .infer = same_as_input}},
      {"Take", {.inputs = 1, .parameters = 1, .numbers = 1, .infer = same_as_input}},
      {"Skip", {.inputs = 1, .parameters = 1, .numbers = 1, .infer = same_as_input}},
      {"Shard", {.inputs = 1, .parameters = 2, .numbers = 2, .infer = same_as_input}},
      {"Zip", {.inputs = -1, .infer = zip}},
      {"Concatenate", {.inputs = 2, .infer = concatenate}},
      // Of when they are made.
      {"Prefetch", {.inputs = 1, .parameters = 1, .numbers = 1, .infer = same_as_input}},
      {"Cache", {.inputs = 1, .infer = same_as_input}},
      {"CacheFile", {.inputs = 1, .parameters = 1, .infer = cache_file}},  // filename
  };
  return *table;
}

Status check_parameter(const Parameter& parameter, size_t i) {
  if (parameter.slot < 0) {
    return parameter.value.defined() ? Status() : invalid_argument("parameter {} has no value", i);
  }
  if (!tensor::is_valid(parameter.spec.dtype)) {
    return invalid_argument("parameter {} has no dtype", i);
  }
  return ir::check_shape(parameter.spec.shape);
}

Status check_counts(const DatasetDef& def, const Op& op) {
  const auto inputs = static_cast<int>(def.inputs.size());
  if (op.inputs < 0 ? inputs == 0 : inputs != op.inputs) {
    return invalid_argument("{} inputs; it takes {}", inputs,
                            op.inputs < 0 ? "one or more" : std::to_string(op.inputs));
  }
  if (std::find(def.inputs.begin(), def.inputs.end(), nullptr) != def.inputs.end()) {
    return invalid_argument("an input is missing");
  }
  const auto parameters = static_cast<int>(def.parameters.size());
  const bool any = op.has_function;  // What the function captures comes after its own.
  if (op.parameters < 0 ? parameters == 0
                        : parameters < op.parameters || (!any && parameters > op.parameters)) {
    return invalid_argument("{} parameters; it takes {}", parameters,
                            op.parameters < 0 ? "one or more" : std::to_string(op.parameters));
  }
  if ((def.function != nullptr) != op.has_function || (def.inner != nullptr) != op.has_inner) {
    return invalid_argument("a function is {}", op.has_function ? "missing" : "not expected");
  }
  return {};
}

int64_t saturating_add(int64_t a, int64_t b) {
  return std::min(a + b, 2 * kMaxStages);  // Neither is above that.
}

}  // namespace

Parameter Parameter::of(Tensor value) {
  Parameter out;
  out.spec = {value.dtype(), value.shape()};
  out.value = std::move(value);
  return out;
}

Parameter Parameter::from_slot(int32_t slot, ir::TensorSpec spec) {
  Parameter out;
  out.slot = slot;
  out.spec = std::move(spec);
  return out;
}

Result<DatasetPtr> Dataset::make(DatasetDef def) {
  std::shared_ptr<Dataset> made(new Dataset());
  made->def_ = std::move(def);
  made->shared_ = std::make_shared<SharedState>();
  SR_RETURN_IF_ERROR(base::with_context(made->infer(), made->def_.op));
  return DatasetPtr(std::move(made));
}

Status Dataset::infer() {
  const auto op = ops().find(def_.op);
  if (op == ops().end()) return invalid_argument("there is no dataset of this kind");
  SR_RETURN_IF_ERROR(check_counts(def_, op->second));
  has_slots_ = def_.op == "Argument" && list_ == nullptr;
  for (size_t i = 0; i < def_.parameters.size(); ++i) {
    const Parameter& parameter = def_.parameters[i];
    SR_RETURN_IF_ERROR(check_parameter(parameter, i));
    has_slots_ = has_slots_ || parameter.slot >= 0;
    const bool is_number = parameter.spec.dtype == DType::kInt64 && parameter.spec.shape == Shape();
    if (static_cast<int>(i) < op->second.numbers && !is_number) {
      return invalid_argument("parameter {} is {}; it must be an int64 scalar", i,
                              ir::to_string(parameter.spec));
    }
  }
  const auto stand_on = [&](const DatasetPtr& other) {
    depth_ = std::max(depth_, other->depth_ + 1);
    stages_ = saturating_add(stages_, other->stages_);
    if (local_.empty()) local_ = other->local_;
  };
  for (const DatasetPtr& input : def_.inputs) {
    stand_on(input);
    has_slots_ = has_slots_ || input->has_slots_;
  }
  if (def_.inner != nullptr) stand_on(def_.inner);
  if (depth_ > kMaxDepth || stages_ > kMaxStages) {
    return invalid_argument("it stands on {} others, {} deep; at most {}, {} deep, may be", stages_,
                            depth_, kMaxStages, kMaxDepth);
  }
  if (local_.empty() && def_.op == "Generator") {
    local_ = "a generator is Python code, which runs in the process that made it only";
  }
  if (local_.empty() && def_.function != nullptr) local_ = local_ops(def_.function->body());
  outputs_.clear();
  return op->second.infer({def_, &outputs_});
}

Result<DatasetPtr> Dataset::filled(const DatasetPtr& self, const std::vector<Tensor>& values,
                                   const Element& element) const {
  if (!has_slots_) return self;
  std::shared_ptr<Dataset> made(new Dataset(*this));
  if (def_.op == "Argument" && list_ == nullptr) {
    const auto index = static_cast<size_t>(ir::attr_or<int64_t>(def_.attrs, "index", 0));
    if (index >= element.size() || element[index].list == nullptr) {
      return invalid_argument("component {} of the element is no window", index);
    }
    SR_RETURN_IF_ERROR(check_element({element[index]}, {{outputs_[0].spec, true}}));
    made->list_ = element[index].list;
  }
  for (Parameter& parameter : made->def_.parameters) {
    if (parameter.slot < 0) continue;
    const auto slot = static_cast<size_t>(parameter.slot);
    if (slot >= values.size()) {
      return invalid_argument("{} values are given; value {} is used", values.size(), slot);
    }
    if (!covers(parameter.spec, {values[slot].dtype(), values[slot].shape()})) {
      return invalid_argument("value {} is {}; {} is expected", slot, values[slot].to_string(),
                              ir::to_string(parameter.spec));
    }
    parameter = Parameter::of(values[slot]);
  }
  for (DatasetPtr& input : made->def_.inputs) {
    const DatasetPtr before = input;
    SR_ASSIGN_OR_RETURN(input, before->filled(before, values, element));
  }
  made->depth_ = 1;
  made->stages_ = 1;
  SR_RETURN_IF_ERROR(base::with_context(made->infer(), def_.op));
  // What it caches depends on what it is filled with.
  if (def_.op == "Cache") made->shared_ = std::make_shared<SharedState>();
  return DatasetPtr(std::move(made));
}

Result<DatasetPtr> Dataset::with_values(const DatasetPtr& self,
                                        const absl::flat_hash_map<int64_t, Tensor>& values) const {
  std::shared_ptr<Dataset> made(new Dataset(*this));
  bool is_other = false;
  for (Parameter& parameter : made->def_.parameters) {
    const auto found = values.find(parameter.variable);
    if (parameter.variable < 0 || found == values.end()) continue;
    const ir::TensorSpec spec{found->second.dtype(), found->second.shape()};
    if (!covers(parameter.spec, spec)) {
      return invalid_argument("{}: a variable is {}; it was {} when the dataset was made", def_.op,
                              ir::to_string(spec), ir::to_string(parameter.spec));
    }
    parameter.value = found->second;
    is_other = true;
  }
  const auto replace = [&](DatasetPtr* dataset) -> Status {
    if (*dataset == nullptr) return {};
    const DatasetPtr before = *dataset;
    SR_ASSIGN_OR_RETURN(*dataset, before->with_values(before, values));
    is_other = is_other || *dataset != before;
    return {};
  };
  for (DatasetPtr& input : made->def_.inputs) SR_RETURN_IF_ERROR(replace(&input));
  SR_RETURN_IF_ERROR(replace(&made->def_.inner));
  return is_other ? DatasetPtr(std::move(made)) : self;
}

const std::vector<Tensor>* list_of(const Dataset& dataset) { return dataset.list_.get(); }

Result<int64_t> number_of(const Dataset& dataset, size_t i) {
  SR_ASSIGN_OR_RETURN(const std::vector<int64_t> numbers, numbers_of(dataset, i));
  if (numbers.size() == 1) return numbers[0];
  return invalid_argument("{}: parameter {} is no number", dataset.op(), i);
}

Result<std::vector<int64_t>> numbers_of(const Dataset& dataset, size_t i) {
  const Parameter& parameter = dataset.def().parameters[i];
  if (!parameter.value.defined()) {
    return base::failed_precondition("{}: parameter {} is known inside of a function only",
                                     dataset.op(), i);
  }
  if (parameter.value.dtype() != DType::kInt64) {
    return invalid_argument("{}: parameter {} is no int64", dataset.op(), i);
  }
  const auto numbers = parameter.value.data<const int64_t>();
  return std::vector<int64_t>(numbers.begin(), numbers.end());
}

size_t first_capture(const Dataset& dataset) {
  return static_cast<size_t>(std::max(0, ops().at(dataset.op()).parameters));
}

bool is_ragged(const Shape& batch) { return batch.rank() > 1 && batch.dim(1) < 0; }

int64_t range_length(int64_t start, int64_t stop, int64_t step) {
  // In 128 bits nothing overflows.
  const __int128 distance = static_cast<__int128>(stop) - start;
  if (step == 0 || distance == 0 || (distance < 0) != (step < 0)) return 0;
  const __int128 count = (distance + step - (step > 0 ? 1 : -1)) / step;
  constexpr __int128 kMax = std::numeric_limits<int64_t>::max();
  return static_cast<int64_t>(std::min(count, kMax));
}

int64_t Dataset::cardinality() const {
  if (has_slots_) return kUnknown;
  std::vector<int64_t> of;
  for (const DatasetPtr& input : def_.inputs) of.push_back(input->cardinality());
  const auto number = [&](size_t i) { return *number_of(*this, i); };
  const std::string& op = def_.op;
  if (op == "Tensors") return 1;
  if (op == "TensorSlices") return def_.parameters[0].value.shape().dim(0);
  if (op == "Range") return range_length(number(0), number(1), number(2));
  if (op == "Argument") return static_cast<int64_t>(list_->size());
  if (op == "Zip") {
    int64_t least = kInfinite;
    for (const int64_t n : of) {
      if (n == kUnknown) return kUnknown;
      if (n != kInfinite) least = least == kInfinite ? n : std::min(least, n);
    }
    return least;
  }
  if (op == "Concatenate") {
    if (of[0] == kInfinite || of[1] == kInfinite) return kInfinite;
    if (of[0] == kUnknown || of[1] == kUnknown) return kUnknown;
    return of[0] > std::numeric_limits<int64_t>::max() - of[1] ? kUnknown : of[0] + of[1];
  }
  if (op == "Repeat") {
    const int64_t count = number(0);
    if (count == 0 || of[0] == 0) return 0;
    if (count < 0) return kInfinite;
    if (of[0] < 0) return of[0];
    return of[0] > std::numeric_limits<int64_t>::max() / count ? kUnknown : of[0] * count;
  }
  if (op == "Take") {
    const int64_t count = number(0);
    if (count < 0 || of[0] == kUnknown) return of[0];
    return of[0] == kInfinite ? count : std::min(of[0], count);
  }
  if (op == "Skip") {
    const int64_t count = number(0);
    if (count < 0) return 0;
    return of[0] < 0 ? of[0] : std::max<int64_t>(0, of[0] - count);
  }
  if (op == "Batch" || op == "PaddedBatch" || op == "RaggedBatch") {
    if (of[0] < 0) return of[0];
    const int64_t size = std::max<int64_t>(1, number(0));
    const bool whole = ir::attr_or(def_.attrs, "drop_remainder", false);
    return of[0] / size + (!whole && of[0] % size != 0 ? 1 : 0);
  }
  if (op == "Shard") {
    const int64_t shards = number(0);
    const int64_t index = number(1);
    if (of[0] < 0 || shards < 1 || index < 0 || index >= shards) return of[0];
    return of[0] / shards + (index < of[0] % shards ? 1 : 0);
  }
  const bool keeps_number =
      op == "Map" || op == "Shuffle" || op == "Prefetch" || op == "Cache" || op == "CacheFile";
  return keeps_number ? of[0] : kUnknown;
}

}  // namespace sidereal::dataset
