#include <algorithm>
#include <variant>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "sidereal/exec/array_util.h"
#include "sidereal/exec/string_util.h"
#include "sidereal/ir/schema.h"
#include "sidereal/parse/example.h"

/// tf.train.Example messages to features.
namespace sidereal::exec {
namespace {

using base::invalid_argument;
using tensor::DType;
using tensor::Shape;
using tensor::Tensor;

using Strings = std::vector<std::string>;
using FeatureTypes = tensor::TypeList<float, int64_t, std::string_view>;

enum class Form : uint8_t { kDense, kSparse, kRagged };

/// A feature asked for, and its values in the rows read so far. Keeps its memory from run to run.
struct Column {
  std::string key;
  Form form = Form::kDense;
  DType dtype = DType::kInvalid;
  Shape shape = {};           ///< Of a dense row; its first extent may be -1.
  int64_t row_elements = 0;   ///< Of a dense row; of one step of the first extent if that is -1.
  parse::Feature found = {};  ///< In the row being read.
  std::variant<std::vector<float>, std::vector<int64_t>, std::vector<std::string_view>> values = {};
  std::vector<int64_t> ends = {};  ///< Of each row, where its values end.

  [[nodiscard]] bool open() const { return shape.rank() > 0 && shape.dim(0) < 0; }
  /// Where the values of row `row` begin.
  [[nodiscard]] int64_t begin(size_t row) const { return row == 0 ? 0 : ends[row - 1]; }

  template <class T>
  std::vector<T>& of() {
    return *std::get_if<std::vector<T>>(&values);
  }
};

/// The columns of `bind`: dense, then sparse, then ragged.
class ColumnsReader {
 public:
  explicit ColumnsReader(const BindContext& bind) : bind_(bind), attrs_(bind.instruction.attrs) {}

  Result<std::vector<Column>> read() {
    const auto numbers = ir::attr_or<std::vector<int64_t>>(attrs_, "dense_shapes", {});
    size_t at = 0;
    for (const std::string& key : ir::attr_or<Strings>(attrs_, "dense_keys", {})) {
      Column column{.key = key, .form = Form::kDense};
      SR_RETURN_IF_ERROR(read_shape(numbers, &at, &column));
      if (columns_.size() + 1 >= bind_.instruction.inputs.size()) return wrong();
      column.dtype = bind_.program.slots[bind_.instruction.inputs[columns_.size() + 1]].dtype;
      columns_.push_back(std::move(column));
    }
    if (bind_.instruction.inputs.size() != columns_.size() + 1) return wrong();
    SR_RETURN_IF_ERROR(read_open("sparse_keys", "sparse_types", Form::kSparse));
    SR_RETURN_IF_ERROR(read_open("ragged_keys", "ragged_types", Form::kRagged));
    for (Column& column : columns_) {
      SR_RETURN_IF_ERROR(tensor::with_dtype<FeatureTypes>(column.dtype, [&]<class T>() -> Status {
        column.values = std::vector<T>();
        return {};
      }));
    }
    return std::move(columns_);
  }

 private:
  static Status wrong() { return invalid_argument("keys, shapes and defaults do not fit"); }

  static Status read_shape(const std::vector<int64_t>& numbers, size_t* at, Column* column) {
    const auto left = static_cast<int64_t>(numbers.size() - *at);
    if (left < 1 || numbers[*at] < 0 || numbers[*at] >= left || numbers[*at] >= ir::kMaxRank) {
      return wrong();
    }
    Shape rest;  // All but an open first extent.
    const auto rank = static_cast<size_t>(numbers[(*at)++]);
    for (size_t i = 0; i < rank; ++i) {
      const int64_t extent = numbers[(*at)++];
      if (extent < 0 && (i > 0 || extent < -1)) return wrong();
      column->shape.append(extent);
      if (extent >= 0) rest.append(extent);
    }
    SR_RETURN_IF_ERROR(ir::check_shape(rest));
    column->row_elements = rest.num_elements();
    return {};
  }

  Status read_open(const char* keys_name, const char* types_name, Form form) {
    const auto keys = ir::attr_or<Strings>(attrs_, keys_name, {});
    const auto types = ir::attr_or<Strings>(attrs_, types_name, {});
    if (keys.size() != types.size()) return wrong();
    for (size_t i = 0; i < keys.size(); ++i) {
      SR_ASSIGN_OR_RETURN(const DType dtype, tensor::dtype_from_name(types[i]));
      columns_.push_back({.key = keys[i], .form = form, .dtype = dtype});
    }
    return {};
  }

  const BindContext& bind_;
  const ir::AttrMap& attrs_;
  std::vector<Column> columns_;
};

/// The dtypes of the outputs, in their order.
std::vector<DType> output_dtypes(const std::vector<Column>& columns) {
  std::vector<DType> out;
  const auto add = [&](Form form, DType dtype) {
    for (const Column& column : columns) {
      if (column.form == form) out.push_back(dtype == DType::kInvalid ? column.dtype : dtype);
    }
  };
  add(Form::kSparse, DType::kInt64);
  add(Form::kSparse, DType::kInvalid);
  add(Form::kSparse, DType::kInt64);
  add(Form::kDense, DType::kInvalid);
  add(Form::kRagged, DType::kInvalid);
  add(Form::kRagged, DType::kInt64);
  return out;
}

class ExampleParser {
 public:
  explicit ExampleParser(std::vector<Column> columns) : columns_(std::move(columns)) {
    for (size_t i = 0; i < columns_.size(); ++i) places_.emplace(columns_[i].key, i);
  }

  Status run(KernelContext& c) {
    SR_RETURN_IF_ERROR(check_dtype(c, 0, DType::kString));
    const Shape rows = c.input(0).shape();
    if (rows.rank() > 1) return invalid_argument("examples have shape {}", rows.to_string());
    SR_RETURN_IF_ERROR(start(c));
    const auto examples = c.in<std::string_view>(0);
    for (size_t row = 0; row < examples.size(); ++row) {
      const Status status = read_row(c, examples[row]);
      if (!status.ok()) {
        return invalid_argument("example {}: {}", row, base::message_of(status));
      }
    }
    return write(c, rows);
  }

 private:
  Status start(const KernelContext& c) {
    int input = 1;
    for (Column& column : columns_) {
      column.ends.clear();
      std::visit([](auto& values) { values.clear(); }, column.values);
      if (column.form != Form::kDense) continue;
      SR_RETURN_IF_ERROR(check_dtype(c, input, column.dtype));
      const int64_t given = c.input(input++).num_elements();
      const int64_t wanted = column.open() ? 1 : column.row_elements;
      if (given != 0 && given != wanted) {
        return invalid_argument("the default of feature '{}' has {} elements; {} are needed",
                                column.key, given, wanted);
      }
    }
    return {};
  }

  Status read_row(const KernelContext& c, std::string_view example) {
    SR_RETURN_IF_ERROR(parse::read_example(example, &entries_));
    for (Column& column : columns_) column.found = {};
    for (const parse::NamedFeature& entry : entries_) {
      const auto place = places_.find(entry.name);
      if (place != places_.end()) columns_[place->second].found = entry.feature;
    }
    int input = 1;
    for (Column& column : columns_) {
      const int at = column.form == Form::kDense ? input++ : -1;
      const Status status =
          tensor::with_dtype<FeatureTypes>(column.dtype, [&]<class T>() -> Status {
            return read_values<T>(at < 0 ? std::span<const T>() : c.in<T>(at), &column);
          });
      if (!status.ok()) {
        return invalid_argument("feature '{}': {}", column.key, base::message_of(status));
      }
    }
    return {};
  }

  template <class T>
  static Status read_values(std::span<const T> fallback, Column* column) {
    std::vector<T>& values = column->of<T>();
    const auto before = static_cast<int64_t>(values.size());
    SR_RETURN_IF_ERROR(parse::append_values(column->found, &values));
    const int64_t count = static_cast<int64_t>(values.size()) - before;
    if (column->form == Form::kDense && column->open()) {
      if (column->row_elements > 0 && count % column->row_elements != 0) {
        return invalid_argument("{} values are no whole number of rows of {}", count,
                                column->row_elements);
      }
    } else if (column->form == Form::kDense) {
      if (column->found.kind == parse::FeatureKind::kNone) {
        if (fallback.empty() && column->row_elements > 0) {
          return invalid_argument("it is required but missing; give a default to allow that");
        }
        values.insert(values.end(), fallback.begin(), fallback.end());
      } else if (count != column->row_elements) {
        return invalid_argument("{} values where shape {} needs {}", count,
                                column->shape.to_string(), column->row_elements);
      }
    }
    column->ends.push_back(static_cast<int64_t>(values.size()));
    return {};
  }

  // --- Outputs.

  Status write(KernelContext& c, const Shape& rows) {
    int output = 0;
    for (const auto part : {&ExampleParser::put_indices, &ExampleParser::put_values,
                            &ExampleParser::put_dense_shape}) {
      SR_RETURN_IF_ERROR(write_all(c, Form::kSparse, part, rows, &output));
    }
    SR_RETURN_IF_ERROR(write_all(c, Form::kDense, &ExampleParser::put_dense, rows, &output));
    SR_RETURN_IF_ERROR(write_all(c, Form::kRagged, &ExampleParser::put_values, rows, &output));
    return write_all(c, Form::kRagged, &ExampleParser::put_splits, rows, &output);
  }

  using Put = Status (ExampleParser::*)(KernelContext&, Column*, const Shape&, int);
  Status write_all(KernelContext& c, Form form, Put put, const Shape& rows, int* output) {
    inputs_ = 1;
    for (Column& column : columns_) {
      if (column.form != form) continue;
      SR_RETURN_IF_ERROR((this->*put)(c, &column, rows, (*output)++));
      ++inputs_;
    }
    return {};
  }

  Status put_indices(KernelContext& c, Column* column, const Shape& rows, int output) {
    const auto count = column->ends.empty() ? 0 : column->ends.back();
    int64_t* out = c.output(output, Shape{count, rows.rank() + 1}).data<int64_t>().data();
    for (size_t row = 0; row < column->ends.size(); ++row) {
      const int64_t begin = column->begin(row);
      for (int64_t i = begin; i < column->ends[row]; ++i) {
        if (rows.rank() > 0) *out++ = static_cast<int64_t>(row);
        *out++ = i - begin;
      }
    }
    return {};
  }

  Status put_values(KernelContext& c, Column* column, const Shape& /*rows*/, int output) {
    return tensor::with_dtype<FeatureTypes>(column->dtype, [&]<class T>() -> Status {
      const std::vector<T>& values = column->of<T>();
      const Tensor& out = c.output(output, Shape{static_cast<int64_t>(values.size())});
      std::copy(values.begin(), values.end(), out.template data<T>().data());
      return {};
    });
  }

  Status put_dense_shape(KernelContext& c, Column* column, const Shape& rows, int output) {
    int64_t* out = c.output(output, Shape{rows.rank() + 1}).data<int64_t>().data();
    if (rows.rank() > 0) *out++ = rows.dim(0);
    *out = longest(*column);
    return {};
  }

  Status put_splits(KernelContext& c, Column* column, const Shape& /*rows*/, int output) {
    const auto count = static_cast<int64_t>(column->ends.size());
    int64_t* out = c.output(output, Shape{count + 1}).data<int64_t>().data();
    *out++ = 0;
    std::copy(column->ends.begin(), column->ends.end(), out);
    return {};
  }

  Status put_dense(KernelContext& c, Column* column, const Shape& rows, int output) {
    Shape shape = rows;
    const int64_t unit = std::max<int64_t>(column->row_elements, 1);
    for (int i = 0; i < column->shape.rank(); ++i) {
      const int64_t extent = column->shape.dim(i);
      shape.append(extent < 0 ? longest(*column) / unit : extent);
    }
    SR_ASSIGN_OR_RETURN(Tensor * out, large_output(c, output, shape));
    return tensor::with_dtype<FeatureTypes>(column->dtype, [&]<class T>() -> Status {
      T* to = out->template data<T>().data();
      const std::vector<T>& values = column->of<T>();
      if (!column->open()) {
        std::copy(values.begin(), values.end(), to);
        return {};
      }
      const std::span<const T> fallback = c.in<T>(inputs_);
      const T padding = fallback.empty() ? T() : fallback[0];
      const int64_t width = longest(*column);
      for (size_t row = 0; row < column->ends.size(); ++row, to += width) {
        const T* const from = values.data() + column->begin(row);
        T* const end = std::copy(from, values.data() + column->ends[row], to);
        std::fill(end, to + width, padding);
      }
      return {};
    });
  }

  /// Values of the row that has the most.
  static int64_t longest(const Column& column) {
    int64_t most = 0;
    for (size_t row = 0; row < column.ends.size(); ++row) {
      most = std::max(most, column.ends[row] - column.begin(row));
    }
    return most;
  }

  std::vector<Column> columns_;
  absl::flat_hash_map<std::string_view, size_t> places_;  // Views of the keys of columns_.
  std::vector<parse::NamedFeature> entries_;              // Of the row being read.
  int inputs_ = 1;  // Input of the default of the column being written.
};

Result<std::unique_ptr<Kernel>> parse_example(const BindContext& bind) {
  SR_ASSIGN_OR_RETURN(std::vector<Column> columns, ColumnsReader(bind).read());
  const std::vector<DType> dtypes = output_dtypes(columns);
  if (dtypes.size() != bind.instruction.outputs.size()) {
    return invalid_argument("{} outputs where the keys give {}", bind.instruction.outputs.size(),
                            dtypes.size());
  }
  for (size_t i = 0; i < dtypes.size(); ++i) {
    SR_RETURN_IF_ERROR(
        check_slot(bind, bind.instruction.outputs[i], dtypes[i], fmt::format("output {}", i)));
  }
  auto parser = std::make_shared<ExampleParser>(std::move(columns));
  return make_kernel([parser](KernelContext& c) { return parser->run(c); });
}

}  // namespace

void register_example_kernels(KernelTable* table) {
  table->add("ParseExample", with_arity(1, -1, -1, parse_example));
}

}  // namespace sidereal::exec
