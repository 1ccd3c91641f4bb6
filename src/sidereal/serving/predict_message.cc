#include "sidereal/serving/predict_message.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <functional>
#include <limits>
#include <set>
#include <type_traits>

#include "sidereal/base/strings.h"
#include "sidereal/parse/protobuf_wire.h"
#include "sidereal/tensor/strings.h"

namespace sidereal::serving {

namespace {

using base::invalid_argument;
using parse::Field;
using parse::WireReader;
using parse::WireType;
using tensor::DType;
using tensor::Shape;

/// NumPy of any version has so many.
constexpr int kRankMax = 32;

/// A dtype: its number in tensorflow/core/framework/types.proto, and the field of its values in
/// tensor.proto.
struct Kind {
  DType dtype;
  uint32_t number;
  uint32_t field;
  const char* called;
};
constexpr uint32_t kContent = 4;
constexpr uint32_t kFloats = 5;
constexpr uint32_t kDoubles = 6;
constexpr uint32_t kInts = 7;
constexpr uint32_t kStrings = 8;
constexpr uint32_t kInt64s = 10;
constexpr uint32_t kBools = 11;
constexpr uint32_t kHalves = 13;
constexpr uint32_t kUint32s = 16;
constexpr uint32_t kUint64s = 17;
constexpr std::array kKinds = {
    Kind{DType::kFloat32, 1, kFloats, "DT_FLOAT"},
    Kind{DType::kFloat64, 2, kDoubles, "DT_DOUBLE"},
    Kind{DType::kInt32, 3, kInts, "DT_INT32"},
    Kind{DType::kUInt8, 4, kInts, "DT_UINT8"},
    Kind{DType::kInt16, 5, kInts, "DT_INT16"},
    Kind{DType::kInt8, 6, kInts, "DT_INT8"},
    Kind{DType::kString, 7, kStrings, "DT_STRING"},
    Kind{DType::kInt64, 9, kInt64s, "DT_INT64"},
    Kind{DType::kBool, 10, kBools, "DT_BOOL"},
    Kind{DType::kUInt16, 17, kInts, "DT_UINT16"},
    Kind{DType::kFloat16, 19, kHalves, "DT_HALF"},
    Kind{DType::kUInt32, 22, kUint32s, "DT_UINT32"},
    Kind{DType::kUInt64, 23, kUint64s, "DT_UINT64"},
};

const Kind* kind_of(uint64_t number) {
  const auto* found = std::find_if(kKinds.begin(), kKinds.end(),
                                   [&](const Kind& kind) { return kind.number == number; });
  return found == kKinds.end() ? nullptr : found;
}

const Kind* kind_of(DType dtype) {
  const auto* found = std::find_if(kKinds.begin(), kKinds.end(),
                                   [&](const Kind& kind) { return kind.dtype == dtype; });
  return found == kKinds.end() ? nullptr : found;
}

Status no_message(const char* what) {
  return invalid_argument("the request is no {}: its bytes make no sense", what);
}

Status no_tensor(std::string_view name) {
  return invalid_argument("input '{}' is no TensorProto: its bytes make no sense", name);
}

/// "[2, 3]".
std::string text_of(const Shape& shape) {
  return fmt::format("[{}]", fmt::join(shape.dims(), ", "));
}

/// A message whose field 1 is a number: a version, an extent.
bool read_number(std::string_view message, int64_t* out) {
  return parse::each_field(message, [out](const Field& field) {
    if (field.number == 1 && field.type == WireType::kVarint) {
      *out = static_cast<int64_t>(field.varint);
    }
    return true;
  });
}

/// Fields that come again are put together, as protobuf does it.
bool read_spec(std::string_view message, PredictRequest* out) {
  return parse::each_field(message, [out](const Field& field) {
    if (field.type != WireType::kBytes) return true;
    if (field.number == 1) out->model = field.bytes;
    if (field.number == 2) {
      if (!out->has_version) out->version = 0;
      if (!read_number(field.bytes, &out->version)) return false;
      out->has_version = true;
      out->has_label = false;
    }
    if (field.number == 3) out->signature = field.bytes;
    if (field.number == 4) {
      out->label = field.bytes;
      out->has_label = true;
      out->has_version = false;
    }
    return true;
  });
}

bool read_input(std::string_view message, PredictRequest* out) {
  GivenInput given;
  bool has_message = false;
  const bool is_read = parse::each_field(message, [&](const Field& field) {
    if (field.type != WireType::kBytes) return true;
    if (field.number == 1) given.name = field.bytes;
    if (field.number != 2) return true;
    if (has_message) {
      given.message = out->joined.emplace_back(std::string(given.message) += field.bytes);
    } else {
      given.message = field.bytes;
    }
    has_message = true;
    return true;
  });
  if (is_read) out->inputs.push_back(given);
  return is_read;
}

/// What a TensorProto says before its values.
struct Head {
  uint64_t dtype = 0;
  Shape shape;
  int dims = 0;
  bool is_known = true;
  std::string_view content;
};

bool read_extent(std::string_view message, Head* out) {
  int64_t extent = 0;
  if (!read_number(message, &extent)) return false;
  if (++out->dims <= kRankMax) out->shape.append(extent);
  out->is_known &= extent >= 0;
  return true;
}

bool read_shape(std::string_view message, Head* out) {
  return parse::each_field(message, [out](const Field& field) {
    if (field.number == 3 && field.type == WireType::kVarint) out->is_known &= field.varint == 0;
    return field.number != 2 || field.type != WireType::kBytes || read_extent(field.bytes, out);
  });
}

bool read_head(std::string_view message, Head* out) {
  return parse::each_field(message, [out](const Field& field) {
    if (field.number == 1 && field.type == WireType::kVarint) out->dtype = field.varint;
    if (field.type != WireType::kBytes) return true;
    if (field.number == kContent) out->content = field.bytes;
    return field.number != 2 || read_shape(field.bytes, out);
  });
}

/// Calls `take(bytes)` for each string, or `take(bytes)` of 4 or 8 bytes, or `take(varint)`, of the
/// values in a field, packed or one by one. False for what is none, or when `take` says so.
template <WireType type, class Take>
bool each_value(std::string_view message, uint32_t number, Take take) {
  return parse::each_field(message, [&](const Field& field) {
    if (field.number != number) return true;
    if constexpr (type == WireType::kBytes) {
      return field.type != type || take(field.bytes);
    } else if constexpr (type == WireType::kVarint) {
      if (field.type == type) return take(field.varint);
      return field.type != WireType::kBytes || parse::each_varint(field.bytes, take);
    } else {
      constexpr size_t kSize = type == WireType::kFixed32 ? 4 : 8;
      if (field.type == type) return take(field.bytes);
      if (field.type != WireType::kBytes) return true;
      if (field.bytes.size() % kSize != 0) return false;
      for (size_t at = 0; at < field.bytes.size(); at += kSize) {
        if (!take(field.bytes.substr(at, kSize))) return false;
      }
      return true;
    }
  });
}

/// The values of a TensorProto in its typed fields, into elements that are there.
template <class T>
class Values {
 public:
  Values(std::string_view name, std::span<T> out) : name_(name), out_(out) {}

  Status read(std::string_view message, const Kind& kind) {
    bool fits = true;
    const auto add = [&](T value) {
      if (count_ < out_.size()) out_[count_] = value;
      ++count_;
      return true;
    };
    bool is_read = false;
    if constexpr (std::is_same_v<T, std::string_view>) {
      is_read = each_value<WireType::kBytes>(message, kind.field, add);
    } else if constexpr (std::is_same_v<T, float> || std::is_same_v<T, double>) {
      constexpr WireType kType = sizeof(T) == 4 ? WireType::kFixed32 : WireType::kFixed64;
      is_read = each_value<kType>(message, kind.field, [&](std::string_view bytes) {
        T value;
        std::memcpy(&value, bytes.data(), sizeof(T));
        return add(value);
      });
    } else {
      is_read = each_value<WireType::kVarint>(message, kind.field, [&](uint64_t said) {
        if constexpr (std::is_same_v<T, bool>) {
          return add(said != 0);
        } else if constexpr (std::is_same_v<T, tensor::Float16>) {
          return add(std::bit_cast<T>(static_cast<uint16_t>(said)));
        } else if constexpr (sizeof(T) < 4) {
          const auto value = static_cast<int32_t>(said);
          fits &= value >= std::numeric_limits<T>::min() && value <= std::numeric_limits<T>::max();
          return add(static_cast<T>(value));
        } else {
          return add(static_cast<T>(said));
        }
      });
    }
    if (!is_read) return no_tensor(name_);
    if (!fits) {
      return invalid_argument("input '{}' has values that {} does not hold", name_,
                              tensor::name_of(kind.dtype));
    }
    return {};
  }

  /// Values that were there, and may be more than there are elements.
  [[nodiscard]] size_t count() const { return count_; }
  void repeat_last() {
    if (count_ == 0 || count_ >= out_.size()) return;
    std::fill(out_.begin() + static_cast<std::ptrdiff_t>(count_), out_.end(), out_[count_ - 1]);
  }

 private:
  const std::string_view name_;
  const std::span<T> out_;
  size_t count_ = 0;
};

/// Has the strings of a tensor in memory of its own, which its buffer keeps.
void own_strings(size_t count, Tensor* out) {
  const std::span<std::string_view> all = out->data<std::string_view>();
  size_t bytes = 0;
  for (size_t i = 0; i < count; ++i) bytes += all[i].size();
  auto block = std::make_shared<std::string>();
  block->reserve(bytes);
  for (size_t i = 0; i < count; ++i) {
    const size_t at = block->size();
    block->append(all[i]);
    all[i] = {block->data() + at, all[i].size()};
  }
  out->buffer()->keep(std::move(block));
}

template <class T>
Status read_values(std::string_view name, std::string_view message, const Kind& kind, Tensor* out) {
  Values<T> values(name, out->data<T>());
  SR_RETURN_IF_ERROR(values.read(message, kind));
  const auto elements = static_cast<size_t>(out->num_elements());
  if (values.count() > elements || (elements > 0 && values.count() == 0)) {
    return invalid_argument("input '{}' has {} values for the shape {}", name, values.count(),
                            text_of(out->shape()));
  }
  if constexpr (std::is_same_v<T, std::string_view>) own_strings(values.count(), out);
  values.repeat_last();
  return {};
}

Status read_any_values(std::string_view name, std::string_view message, const Kind& kind,
                       Tensor* out) {
  switch (kind.dtype) {
    case DType::kFloat32:
      return read_values<float>(name, message, kind, out);
    case DType::kFloat64:
      return read_values<double>(name, message, kind, out);
    case DType::kInt32:
      return read_values<int32_t>(name, message, kind, out);
    case DType::kInt64:
      return read_values<int64_t>(name, message, kind, out);
    case DType::kUInt8:
      return read_values<uint8_t>(name, message, kind, out);
    case DType::kInt8:
      return read_values<int8_t>(name, message, kind, out);
    case DType::kInt16:
      return read_values<int16_t>(name, message, kind, out);
    case DType::kUInt16:
      return read_values<uint16_t>(name, message, kind, out);
    case DType::kUInt32:
      return read_values<uint32_t>(name, message, kind, out);
    case DType::kUInt64:
      return read_values<uint64_t>(name, message, kind, out);
    case DType::kBool:
      return read_values<bool>(name, message, kind, out);
    case DType::kFloat16:
      return read_values<tensor::Float16>(name, message, kind, out);
    case DType::kString:
      return read_values<std::string_view>(name, message, kind, out);
    default:
      return base::internal("{} has no values", tensor::name_of(kind.dtype));
  }
}

void copy_content(std::string_view content, Tensor* out) {
  if (content.empty()) return;
  if (out->dtype() != DType::kBool) {
    std::memcpy(out->raw(), content.data(), content.size());
    return;
  }
  // A bool is nothing but 0 or 1.
  std::transform(content.begin(), content.end(), out->data<bool>().begin(),
                 [](char byte) { return byte != 0; });
}

bool has_shape(const Shape& found, const Shape& wanted) {
  if (found.rank() != wanted.rank()) return false;
  for (int i = 0; i < found.rank(); ++i) {
    if (wanted.dim(i) >= 0 && wanted.dim(i) != found.dim(i)) return false;
  }
  return true;
}

std::string names_of(const std::vector<Input>& inputs) {
  std::vector<std::string_view> names;
  names.reserve(inputs.size());
  for (const Input& input : inputs) names.push_back(input.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

/// Names that a request gave, for a message: not more than a person reads.
std::string names_of(const std::vector<GivenInput>& inputs) {
  constexpr size_t kToldMax = 20;
  std::vector<std::string_view> names;
  std::set<std::string_view> seen;
  for (const GivenInput& input : inputs) {
    const std::string_view name = input.name.substr(0, 100);
    if (seen.insert(name).second) names.push_back(name);
  }
  return names.empty() ? "none" : base::some_of(names, kToldMax, std::identity());
}

Status other_inputs(const PredictRequest& request, const Signature& signature) {
  return invalid_argument("signature '{}' takes {}; given are {}", signature.name,
                          names_of(signature.inputs), names_of(request.inputs));
}

// ---- answers ------------------------------------------------------------------------------------

/// Messages in protobuf's wire format.
class WireWriter {
 public:
  void varint(uint64_t value) {
    while (value >= 0x80) {
      out_.push_back(static_cast<char>(value | 0x80));
      value >>= 7;
    }
    out_.push_back(static_cast<char>(value));
  }
  void number(uint32_t field, uint64_t value) {
    varint(uint64_t{field} << 3);
    varint(value);
  }
  /// The head of a field whose bytes follow.
  void head(uint32_t field, size_t bytes) {
    varint(uint64_t{field} << 3 | 2);
    varint(bytes);
  }
  void bytes(uint32_t field, std::string_view value) {
    head(field, value.size());
    out_.append(value);
  }
  void append(std::string_view bytes) { out_.append(bytes); }
  void reserve(size_t bytes) { out_.reserve(bytes); }
  [[nodiscard]] const std::string& text() const { return out_; }
  std::string take() && { return std::move(out_); }

 private:
  std::string out_;
};

/// A TensorProto but for its content, and how many bytes that has.
Result<WireWriter> tensor_head(const Tensor& value, size_t* content) {
  const Kind* kind = kind_of(value.dtype());
  if (kind == nullptr) {
    return base::unimplemented("an output of {} has no form in TensorFlow's messages",
                               tensor::name_of(value.dtype()));
  }
  WireWriter out;
  out.number(1, kind->number);
  WireWriter shape;
  for (const int64_t extent : value.shape().dims()) {
    WireWriter dim;
    dim.number(1, static_cast<uint64_t>(extent));
    shape.bytes(2, dim.text());
  }
  out.bytes(2, shape.text());
  *content = 0;
  if (value.dtype() == DType::kString) {
    for (const std::string_view item : value.data<const std::string_view>()) {
      out.bytes(kStrings, item);
    }
  } else if (value.nbytes() > 0) {
    *content = value.nbytes();
    out.head(kContent, *content);
  }
  return out;
}

}  // namespace

Result<PredictRequest> read_predict_request(std::string_view message) {
  PredictRequest out;
  WireReader reader(message);
  Field field;
  while (!reader.done()) {
    if (!reader.next(&field)) return no_message("PredictRequest");
    if (field.type != WireType::kBytes) continue;
    if (field.number == 1 && !read_spec(field.bytes, &out)) return no_message("PredictRequest");
    if (field.number == 2 && !read_input(field.bytes, &out)) return no_message("PredictRequest");
    if (field.number == 3) out.output_filter.push_back(field.bytes);
    if (out.inputs.size() > kNamesMax || out.output_filter.size() > kNamesMax) {
      return invalid_argument("the request has more than {} inputs, or names of outputs",
                              kNamesMax);
    }
  }
  return out;
}

Result<Tensor> read_tensor(std::string_view name, std::string_view message, size_t bytes_max) {
  Head head;
  if (!read_head(message, &head)) return no_tensor(name);
  const Kind* kind = kind_of(head.dtype);
  if (kind == nullptr) {
    std::vector<std::string_view> known;
    for (const Kind& one : kKinds) known.emplace_back(one.called);
    return invalid_argument("input '{}' has the dtype {}, which is not served; it may be {}", name,
                            head.dtype, fmt::join(known, ", "));
  }
  if (head.dims > kRankMax) {
    return invalid_argument("input '{}' has {} dimensions, at most {}", name, head.dims, kRankMax);
  }
  if (!head.is_known) return invalid_argument("input '{}' has no known shape", name);
  size_t bytes = tensor::size_of(kind->dtype);
  for (const int64_t extent : head.shape.dims()) {
    if (extent > 1 && bytes > bytes_max / static_cast<size_t>(extent)) bytes = bytes_max + 1;
    if (bytes > bytes_max) break;
    bytes *= static_cast<size_t>(std::max<int64_t>(extent, 1));
  }
  if (bytes > bytes_max) {
    return invalid_argument("input '{}' has the shape {}, which is more than {} bytes", name,
                            text_of(head.shape), bytes_max);
  }
  const bool is_content = !head.content.empty() && kind->dtype != DType::kString;
  const size_t needed = static_cast<size_t>(head.shape.num_elements()) * size_of(kind->dtype);
  if (is_content && head.content.size() != needed) {
    return invalid_argument("input '{}' has {} bytes of content, and its shape {} of {} takes {}",
                            name, head.content.size(), text_of(head.shape),
                            tensor::name_of(kind->dtype), needed);
  }
  Tensor out = Tensor::empty(kind->dtype, head.shape);
  if (is_content) {
    copy_content(head.content, &out);
  } else {
    SR_RETURN_IF_ERROR(read_any_values(name, message, *kind, &out));
  }
  return out;
}

Result<Columns> read_columns(const PredictRequest& request, const Signature& signature,
                             size_t bytes_max) {
  Columns out;
  out.reserve(signature.inputs.size());
  const auto is_input = [&](const GivenInput& given) {
    return std::any_of(signature.inputs.begin(), signature.inputs.end(),
                       [&](const Input& input) { return input.name == given.name; });
  };
  const bool fits = std::all_of(request.inputs.begin(), request.inputs.end(), is_input);
  for (const Input& input : signature.inputs) {
    const auto given = std::find_if(request.inputs.rbegin(), request.inputs.rend(),
                                    [&](const GivenInput& one) { return one.name == input.name; });
    if (!fits || given == request.inputs.rend()) return other_inputs(request, signature);
    SR_ASSIGN_OR_RETURN(Tensor made, read_tensor(input.name, given->message, bytes_max));
    if (made.dtype() != input.dtype) {
      return invalid_argument("'{}' takes {}, and not {}", input.name, tensor::name_of(input.dtype),
                              tensor::name_of(made.dtype()));
    }
    if (!has_shape(made.shape(), input.shape)) {
      std::vector<std::string> wanted;
      for (const int64_t extent : input.shape.dims()) {
        wanted.push_back(extent < 0 ? "?" : std::to_string(extent));
      }
      return invalid_argument("'{}' has the shape {}, and the model takes [{}]", input.name,
                              text_of(made.shape()), fmt::join(wanted, ", "));
    }
    out.push_back(std::move(made));
  }
  if (!fits) return other_inputs(request, signature);
  return out;
}

int64_t rows_of(std::span<const Tensor> columns, const Signature& signature) {
  int64_t rows = -1;
  for (size_t i = 0; i < columns.size(); ++i) {
    const Shape& wanted = signature.inputs[i].shape;
    if (wanted.rank() == 0 || wanted.dim(0) >= 0) return -1;
    const int64_t found = columns[i].shape().dim(0);
    if (rows >= 0 && found != rows) return -1;
    rows = found;
  }
  return rows;
}

Result<std::vector<size_t>> wanted_outputs(const PredictRequest& request,
                                           const Signature& signature) {
  const auto& outputs = signature.outputs;
  std::vector<bool> is_wanted(outputs.size(), request.output_filter.empty());
  for (const std::string_view name : request.output_filter) {
    const auto found = std::find(outputs.begin(), outputs.end(), name);
    if (found == outputs.end()) {
      return invalid_argument("signature '{}' has no output '{}' but {}; see output_filter",
                              signature.name, name.substr(0, 200), fmt::join(outputs, ", "));
    }
    is_wanted[found - outputs.begin()] = true;
  }
  std::vector<size_t> out;
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (is_wanted[i]) out.push_back(i);
  }
  return out;
}

Result<std::string> write_predict_response(const Version& version, const Signature& signature,
                                           std::span<const size_t> wanted,
                                           std::span<const Tensor> outputs) {
  WireWriter spec;
  spec.bytes(1, version.model);
  WireWriter number;
  number.number(1, static_cast<uint64_t>(version.number));
  spec.bytes(2, number.text());
  spec.bytes(3, signature.name);
  WireWriter out;
  size_t bytes = spec.text().size() + 16;
  for (const size_t i : wanted) {
    bytes += outputs[i].nbytes() + signature.outputs[i].size() + 128;
  }
  out.reserve(bytes);
  for (const size_t i : wanted) {
    size_t content = 0;
    SR_ASSIGN_OR_RETURN(const WireWriter head, tensor_head(outputs[i], &content));
    WireWriter entry;
    entry.bytes(1, signature.outputs[i]);
    entry.head(2, head.text().size() + content);
    out.head(1, entry.text().size() + head.text().size() + content);
    out.append(entry.text());
    out.append(head.text());
    if (content > 0) out.append({reinterpret_cast<const char*>(outputs[i].raw()), content});
  }
  out.bytes(2, spec.text());
  return std::move(out).take();
}

}  // namespace sidereal::serving
