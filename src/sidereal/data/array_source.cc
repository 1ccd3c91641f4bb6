#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sidereal/base/strings.h"
#include "sidereal/data/batch_source.h"
#include "sidereal/data/npy.h"
#include "sidereal/data/row_parser.h"
#include "sidereal/tensor/strings.h"

namespace sidereal::data {
namespace {

using base::invalid_argument;
using tensor::DType;
using tensor::Shape;
using tensor::Tensor;

struct Column {
  std::string name;
  std::string file;
  Tensor data;
  Text text = Text::kNone;
  // Elements of one row.
  int64_t width = 1;

  [[nodiscard]] bool is_text() const { return text != Text::kNone; }
  // Of a batch with so many rows.
  [[nodiscard]] Shape shape_of(int64_t rows) const {
    const auto extents = data.shape().dims();
    Shape shape(extents.first(extents.size() - (is_text() ? 1 : 0)));
    shape.set_dim(0, rows);
    return shape;
  }
  [[nodiscard]] std::string to_string() const {
    return is_text() ? fmt::format("string{}", shape_of(data.shape().dim(0)).to_string())
                     : data.to_string();
  }
  // Bytes of one element in the file.
  [[nodiscard]] size_t room() const {
    return is_text() ? static_cast<size_t>(data.shape().dim(-1)) : tensor::size_of(data.dtype());
  }
  [[nodiscard]] std::span<const std::byte> element(int64_t row, int64_t i) const {
    return {data.raw() + static_cast<size_t>(row * width + i) * room(), room()};
  }
};

struct Arrays {
  std::vector<Column> columns;
  int64_t rows = 0;
  // Indices into `columns`; label is -1 when there is none.
  int label = -1;
  std::vector<int> numeric;
  std::vector<int> categorical;
  Schema schema;
};

Result<int> find_column(const Arrays& arrays, const std::string& name) {
  std::vector<std::string> names;
  for (size_t i = 0; i < arrays.columns.size(); ++i) {
    if (arrays.columns[i].name == name) return static_cast<int>(i);
    names.push_back(arrays.columns[i].name);
  }
  return invalid_argument("no array '{}'; the arrays are: {}", name, base::join(names, ", "));
}

Status map_columns(const DataSpec& spec, Arrays* arrays) {
  if (spec.arrays.empty()) return invalid_argument("no arrays are named");
  std::set<std::string> seen;
  for (const auto& [name, file] : spec.arrays) {
    if (!seen.insert(name).second) return invalid_argument("array '{}' is given twice", name);
    Column column;
    column.name = name;
    column.file = file;
    SR_ASSIGN_OR_RETURN(NpyArray array, map_npy(file));
    column.data = std::move(array.data);
    column.text = array.text;
    const int64_t rows = column.data.shape().dim(0);
    column.width = rows == 0 ? 0 : column.shape_of(rows).num_elements() / rows;
    if (!arrays->columns.empty() && rows != arrays->rows) {
      return invalid_argument("array '{}' has {} rows, but '{}' has {}; all must have as many",
                              name, rows, arrays->columns.front().name, arrays->rows);
    }
    arrays->rows = rows;
    arrays->columns.push_back(std::move(column));
  }
  return {};
}

Status give_roles(const DataSpec& spec, Arrays* arrays) {
  Schema& schema = arrays->schema;
  schema.has_label = !spec.label.empty();
  if (schema.has_label) {
    SR_ASSIGN_OR_RETURN(arrays->label, find_column(*arrays, spec.label));
    const Column& label = arrays->columns[arrays->label];
    if (label.width > 1 || label.is_text()) {
      return invalid_argument("the label '{}' is {}; it must have one number per row", spec.label,
                              label.to_string());
    }
  }
  for (const std::string& name : spec.numeric) {
    SR_ASSIGN_OR_RETURN(const int index, find_column(*arrays, name));
    if (arrays->columns[index].is_text()) {
      return invalid_argument("the numeric array '{}' is {}", name,
                              arrays->columns[index].to_string());
    }
    arrays->numeric.push_back(index);
    schema.dense_width += arrays->columns[index].width;
    schema.numeric.push_back(name);
  }
  for (const std::string& name : spec.categorical) {
    SR_ASSIGN_OR_RETURN(const int index, find_column(*arrays, name));
    const Column& column = arrays->columns[index];
    const DType dtype = column.data.dtype();
    if (dtype == DType::kFloat32 || dtype == DType::kFloat64) {
      return invalid_argument("the categorical array '{}' is {}; ids are integers", name,
                              column.to_string());
    }
    if (column.is_text() && spec.id_space > 0) {
      return invalid_argument("the categorical array '{}' is {}, and ids are not hashed", name,
                              column.to_string());
    }
    arrays->categorical.push_back(index);
    schema.fields += column.width;
    schema.categorical.push_back(name);
  }
  if (schema.fields == 0) return {};
  if (spec.id_space <= 0 && (spec.hash_buckets <= 0 || spec.hash_buckets > kHashBucketsMax)) {
    return invalid_argument("hash_buckets is {}; it must be from 1 to {}", spec.hash_buckets,
                            kHashBucketsMax);
  }
  schema.rows = spec.id_space > 0 ? spec.id_space : schema.fields * spec.hash_buckets;
  return {};
}

Result<Arrays> open_columns(const DataSpec& spec) {
  Arrays arrays;
  SR_RETURN_IF_ERROR(map_columns(spec, &arrays));
  SR_RETURN_IF_ERROR(give_roles(spec, &arrays));
  return arrays;
}

template <class To, class From>
void convert(const Tensor& from, int64_t row, int64_t width, To* out) {
  const From* at = from.data<From>().data() + row * width;
  for (int64_t i = 0; i < width; ++i) out[i] = static_cast<To>(at[i]);
}

// Elements of one row as T.
template <class T>
void convert_row(const Column& column, int64_t row, T* out) {
  switch (column.data.dtype()) {
    case DType::kFloat32:
      return convert<T, float>(column.data, row, column.width, out);
    case DType::kFloat64:
      return convert<T, double>(column.data, row, column.width, out);
    case DType::kInt32:
      return convert<T, int32_t>(column.data, row, column.width, out);
    case DType::kInt64:
      return convert<T, int64_t>(column.data, row, column.width, out);
    case DType::kBool:
      return convert<T, bool>(column.data, row, column.width, out);
    default:
      return convert<T, uint8_t>(column.data, row, column.width, out);
  }
}

class ArraySource final : public BatchSource {
 public:
  ArraySource(const DataSpec& spec, const ReadOptions& options, Arrays arrays)
      : spec_(spec), options_(options), arrays_(std::move(arrays)) {
    const Part part = options.part;
    mine_ = arrays_.rows > part.index ? (arrays_.rows - part.index - 1) / part.count + 1 : 0;
    if (spec.shuffle_rows > 0) {
      order_.resize(mine_);
      for (int64_t i = 0; i < mine_; ++i) order_[i] = part.index + i * part.count;
      Random random(shuffle_key(spec, options));
      for (int64_t i = mine_ - 1; i > 0; --i) std::swap(order_[i], order_[random.below(i + 1)]);
    }
    done_ = std::min(options.rows_before, mine_);
    stats_.rows_read = done_;
    stats_.rows_before = done_;
  }

  Result<bool> next(Batch* batch) override {
    const int64_t rows = std::min(options_.batch_size, mine_ - done_);
    chosen_.resize(rows);
    for (int64_t r = 0; r < rows; ++r) {
      chosen_[r] = order_.empty() ? options_.part.index + (done_ + r) * options_.part.count
                                  : order_[done_ + r];
    }
    done_ += rows;
    batch->rows = rows;
    batch->columns.resize(arrays_.columns.size());
    for (size_t i = 0; i < arrays_.columns.size(); ++i) {
      batch->columns[i].first = arrays_.columns[i].name;
      SR_RETURN_IF_ERROR(gather(arrays_.columns[i], &batch->columns[i].second));
    }
    if (arrays_.label >= 0) SR_RETURN_IF_ERROR(fill_label(batch));
    if (arrays_.schema.dense_width > 0) SR_RETURN_IF_ERROR(fill_dense(batch));
    if (arrays_.schema.fields > 0) SR_RETURN_IF_ERROR(fill_ids(batch));
    stats_.rows_read += rows;
    stats_.progress = mine_ == 0 ? 1 : static_cast<double>(done_) / static_cast<double>(mine_);
    return rows > 0;
  }

 private:
  Status gather(const Column& column, Tensor* out) {
    const Shape shape = column.shape_of(static_cast<int64_t>(chosen_.size()));
    const size_t row_bytes = static_cast<size_t>(column.width) * column.room();
    stats_.bytes_read += static_cast<int64_t>(row_bytes * chosen_.size());
    if (column.is_text()) return gather_text(column, shape, out);
    reuse(out, column.data.dtype(), shape);
    std::byte* to = out->raw();
    for (const int64_t row : chosen_) {
      std::memcpy(to, column.data.raw() + static_cast<size_t>(row) * row_bytes, row_bytes);
      to += row_bytes;
    }
    return {};
  }

  Status gather_text(const Column& column, const Shape& shape, Tensor* out) {
    tensor::StringsBuilder strings;
    for (const int64_t row : chosen_) {
      for (int64_t i = 0; i < column.width; ++i) {
        SR_RETURN_IF_ERROR(read_text(column, row, i));
        strings.add(text_);
      }
    }
    *out = std::move(strings).finish(shape);
    return {};
  }

  // Element `i` of a row of strings, into text_.
  Status read_text(const Column& column, int64_t row, int64_t i) {
    text_.clear();
    return base::with_context(append_text(column.text, column.element(row, i), &text_),
                              fmt::format("{}: row {}", column.file, row));
  }

  Status fill_label(Batch* batch) {
    const Column& column = arrays_.columns[arrays_.label];
    reuse(&batch->label, DType::kFloat32, Shape{batch->rows});
    float* out = batch->label.data<float>().data();
    for (const int64_t row : chosen_) {
      convert_row(column, row, out);
      if (spec_.binary_label ? (*out != 0 && *out != 1) : !std::isfinite(*out)) {
        return invalid_argument("{}: row {}: the label is {}; it must be {}", column.file, row,
                                *out, spec_.binary_label ? "0 or 1" : "a finite number");
      }
      ++out;
    }
    return {};
  }

  Status fill_dense(Batch* batch) {
    reuse(&batch->dense, DType::kFloat32, Shape{batch->rows, arrays_.schema.dense_width});
    float* out = batch->dense.data<float>().data();
    for (const int64_t row : chosen_) {
      for (const int index : arrays_.numeric) {
        const Column& column = arrays_.columns[index];
        convert_row(column, row, out);
        for (int64_t i = 0; i < column.width; ++i) {
          if (!std::isfinite(out[i])) {
            return invalid_argument("{}: row {}: '{}' is {}; numbers must be finite", column.file,
                                    row, column.name, out[i]);
          }
        }
        out += column.width;
      }
    }
    return {};
  }

  Status fill_ids(Batch* batch) {
    const int64_t fields = arrays_.schema.fields;
    reuse(&batch->ids, DType::kInt64, Shape{batch->rows, fields});
    int64_t* out = batch->ids.data<int64_t>().data();
    for (const int64_t row : chosen_) {
      int64_t field = 0;
      for (const int index : arrays_.categorical) {
        const Column& column = arrays_.columns[index];
        if (column.is_text()) {
          for (int64_t i = 0; i < column.width; ++i, ++field) {
            SR_RETURN_IF_ERROR(read_text(column, row, i));
            out[field] = category_id(text_, field, spec_.hash_buckets);
          }
          continue;
        }
        convert_row(column, row, out + field);
        for (int64_t i = 0; i < column.width; ++i, ++field) {
          SR_RETURN_IF_ERROR(to_id(column, row, field, out + field));
        }
      }
      out += fields;
    }
    return {};
  }

  [[nodiscard]] Status to_id(const Column& column, int64_t row, int64_t field, int64_t* id) const {
    if (spec_.id_space <= 0) {
      const std::string_view bytes(reinterpret_cast<const char*>(id), sizeof(*id));
      *id = category_id(bytes, field, spec_.hash_buckets);
      return {};
    }
    if (*id >= 0 && *id < spec_.id_space) return {};
    return invalid_argument(
        "{}: row {}: id {} in '{}' is outside [0, {}); make the id space larger", column.file, row,
        *id, column.name, spec_.id_space);
  }

  DataSpec spec_;
  ReadOptions options_;
  Arrays arrays_;
  int64_t mine_ = 0;
  int64_t done_ = 0;
  std::vector<int64_t> order_;
  std::vector<int64_t> chosen_;
  std::string text_;
};

}  // namespace

Result<std::unique_ptr<BatchSource>> open_arrays(const DataSpec& spec, const ReadOptions& options) {
  SR_ASSIGN_OR_RETURN(Arrays arrays, open_columns(spec));
  return std::make_unique<ArraySource>(spec, options, std::move(arrays));
}

Result<Schema> inspect_arrays(const DataSpec& spec) {
  SR_ASSIGN_OR_RETURN(Arrays arrays, open_columns(spec));
  return std::move(arrays.schema);
}

}  // namespace sidereal::data
