#include "sidereal/ckpt/safetensors.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "sidereal/base/check.h"
#include "sidereal/base/strings.h"
#include "sidereal/ckpt/file.h"

namespace sidereal::ckpt {
namespace {

using base::data_loss;
using base::invalid_argument;
using nlohmann::json;
using tensor::DType;
using tensor::Tensor;

constexpr uint64_t kHeaderBytesMax = 100'000'000;  // The format's own limit.
constexpr size_t kAlignment = 8;
constexpr const char* kMetadata = "__metadata__";

struct NamedDType {
  std::string_view name;
  DType dtype;
};
constexpr NamedDType kDTypes[] = {
    {"BOOL", DType::kBool},   {"U8", DType::kUInt8},      {"I8", DType::kInt8},
    {"I16", DType::kInt16},   {"U16", DType::kUInt16},    {"F16", DType::kFloat16},
    {"I32", DType::kInt32},   {"BF16", DType::kBFloat16}, {"U32", DType::kUInt32},
    {"F32", DType::kFloat32}, {"F64", DType::kFloat64},   {"I64", DType::kInt64},
    {"U64", DType::kUInt64}};

DType dtype_of(std::string_view name) {
  for (const NamedDType& one : kDTypes) {
    if (one.name == name) return one.dtype;
  }
  return DType::kInvalid;
}

std::string_view name_of_dtype(DType dtype) {
  for (const NamedDType& one : kDTypes) {
    if (one.dtype == dtype) return one.name;
  }
  return "";
}

/// A whole number that is not negative, or nothing.
bool take_count(const json& value, uint64_t* out) {
  if (!value.is_number_unsigned()) return false;
  *out = value.get<uint64_t>();
  return *out <= static_cast<uint64_t>(INT64_MAX);
}

/// The header's text, and where the elements begin.
Result<std::pair<std::string, uint64_t>> read_header(const InputFile& file) {
  uint64_t size = 0;
  SR_RETURN_IF_ERROR(file.read(0, {reinterpret_cast<char*>(&size), sizeof(size)}));
  if (size > kHeaderBytesMax || size > file.size() - sizeof(size)) {
    return data_loss("its header has {} bytes, of {} in all; is it a safetensors file?", size,
                     file.size());
  }
  std::string text(size, '\0');
  SR_RETURN_IF_ERROR(file.read(sizeof(size), text));
  return std::make_pair(std::move(text), sizeof(size) + size);
}

class Safetensors final : public TensorReader {
 public:
  static Result<std::unique_ptr<TensorReader>> open(const std::string& path) {
    SR_ASSIGN_OR_RETURN(auto file, InputFile::open(path));
    std::unique_ptr<Safetensors> made(new Safetensors(std::move(file)));
    const Status read = made->read_tensors();
    if (!read.ok()) return base::with_context(read, path);
    return std::unique_ptr<TensorReader>(std::move(made));
  }

 private:
  explicit Safetensors(std::unique_ptr<InputFile> file) : file_(std::move(file)) {}

  Status read_tensors() {
    SR_ASSIGN_OR_RETURN(const auto head, read_header(*file_));
    const json header = json::parse(head.first, nullptr, /*allow_exceptions=*/false);
    if (!header.is_object()) return data_loss("its header is no JSON object");
    std::vector<StoredTensor> tensors;
    for (const auto& [name, value] : header.items()) {
      if (name == kMetadata) continue;
      StoredTensor stored{.name = name};
      const Status read = read_tensor(value, head.second, &stored);
      if (!read.ok()) {
        return base::with_context(read,
                                  fmt::format("the tensor '{}'", base::message_text(name, 200)));
      }
      tensors.push_back(std::move(stored));
    }
    set_tensors(std::move(tensors));
    return {};
  }

  Status read_tensor(const json& value, uint64_t data_at, StoredTensor* out) {
    const auto member = [&](const char* key) -> const json* {
      const auto at = value.is_object() ? value.find(key) : value.end();
      return at == value.end() ? nullptr : &*at;
    };
    const json* dtype = member("dtype");
    const json* shape = member("shape");
    const json* offsets = member("data_offsets");
    uint64_t begin = 0;
    uint64_t end = 0;
    if (dtype == nullptr || !dtype->is_string() || shape == nullptr || !shape->is_array() ||
        offsets == nullptr || !offsets->is_array() || offsets->size() != 2 ||
        !take_count((*offsets)[0], &begin) || !take_count((*offsets)[1], &end) || begin > end) {
      return data_loss("the header does not say dtype, shape and data_offsets");
    }
    out->dtype = dtype_of(dtype->get_ref<const std::string&>());
    for (const json& extent : *shape) {
      uint64_t count = 0;
      if (!take_count(extent, &count)) return data_loss("its shape cannot be");
      out->shape.append(static_cast<int64_t>(count));
    }
    if (!check_slice(whole_slice(out->shape), out->shape).ok()) {
      return data_loss("its shape cannot be");
    }
    if (out->dtype == DType::kInvalid) return {};
    uint64_t bytes = 0;
    if (__builtin_mul_overflow(static_cast<uint64_t>(out->shape.num_elements()),
                               tensor::size_of(out->dtype), &bytes) ||
        bytes != end - begin) {
      return data_loss("{}{} does not take {} bytes", tensor::name_of(out->dtype),
                       out->shape.to_string(), end - begin);
    }
    SR_RETURN_IF_ERROR(file_->check(data_at + begin, bytes));
    at_.emplace(out->name, data_at + begin);
    return {};
  }

  Result<Tensor> read_whole(const StoredTensor& stored) override {
    return read_part(stored, whole_slice(stored.shape));
  }

  Result<Tensor> read_part(const StoredTensor& stored, const Slice& part) override {
    SR_ASSIGN_OR_RETURN(Tensor out, tensor_for(stored.dtype, shape_of(part)));
    const size_t size = tensor::size_of(stored.dtype);
    const uint64_t at = at_.at(stored.name);
    RunReader reader(file_.get());
    SR_RETURN_IF_ERROR(for_each_run(whole_slice(stored.shape), part, [&](const Run& run) {
      return reader.read(at + static_cast<uint64_t>(run.from) * size,
                         {reinterpret_cast<char*>(out.raw()) + static_cast<size_t>(run.to) * size,
                          static_cast<size_t>(run.count) * size});
    }));
    return out;
  }

  /// There are no checksums: that all of it is there was looked at.
  Status verify_stored(const StoredTensor&) override { return {}; }

  const std::unique_ptr<InputFile> file_;
  absl::flat_hash_map<std::string, uint64_t> at_;  // Where elements begin.
};

class SafetensorsWriter final : public TensorWriter {
 public:
  static Result<std::unique_ptr<TensorWriter>> create(const std::string& path,
                                                      std::vector<StoredTensor> tensors) {
    // Wide elements first, so that all lie at multiples of their sizes.
    std::stable_sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) {
      return tensor::size_of(a.dtype) > tensor::size_of(b.dtype);
    });
    json header = json::object();
    absl::flat_hash_map<std::string, Place> places;
    uint64_t end = 0;
    for (const StoredTensor& one : tensors) {
      const std::string_view dtype = name_of_dtype(one.dtype);
      if (dtype.empty() || one.name == kMetadata ||
          base::message_text(one.name, one.name.size() + 1) != one.name) {
        return invalid_argument("safetensors cannot hold {} under the name '{}'",
                                tensor::name_of(one.dtype), base::message_text(one.name, 200));
      }
      const uint64_t bytes =
          static_cast<uint64_t>(one.shape.num_elements()) * tensor::size_of(one.dtype);
      const auto dims = one.shape.dims();
      header[one.name] = {{"dtype", dtype},
                          {"shape", std::vector<int64_t>(dims.begin(), dims.end())},
                          {"data_offsets", {end, end + bytes}}};
      places[one.name] = {.at = end, .left = bytes};
      end += bytes;
    }
    std::string text = header.dump();
    text.resize((text.size() + kAlignment - 1) / kAlignment * kAlignment, ' ');
    if (text.size() > kHeaderBytesMax) return invalid_argument("too many tensors for safetensors");
    SR_ASSIGN_OR_RETURN(auto file, OutputFile::create(path));
    const uint64_t size = text.size();
    SR_RETURN_IF_ERROR(file->append({reinterpret_cast<const char*>(&size), sizeof(size)}));
    SR_RETURN_IF_ERROR(file->append(text));
    for (auto& [name, place] : places) place.at += file->size();
    SR_RETURN_IF_ERROR(file->leave_room(end));
    return std::unique_ptr<TensorWriter>(new SafetensorsWriter(std::move(file), std::move(places)));
  }

  Status add(const StoredTensor& tensor, const Slice& slice, const Tensor& piece) override {
    if (!is_whole(slice, tensor.shape)) {
      return invalid_argument("tensor '{}': safetensors has no slices", tensor.name);
    }
    const auto found = places_.find(tensor.name);
    SR_CHECK(found != places_.end() && piece.nbytes() <= found->second.left);
    SR_RETURN_IF_ERROR(file_->overwrite(
        found->second.at, {reinterpret_cast<const char*>(piece.raw()), piece.nbytes()}));
    found->second.at += piece.nbytes();
    found->second.left -= piece.nbytes();
    return {};
  }

  Status finish() override {
    for (const auto& [name, place] : places_) SR_CHECK(place.left == 0, "'{}' has no end", name);
    return file_->finish();
  }

 private:
  struct Place {
    uint64_t at = 0;    ///< Of the next bytes.
    uint64_t left = 0;  ///< Bytes to come.
  };

  SafetensorsWriter(std::unique_ptr<OutputFile> file,
                    absl::flat_hash_map<std::string, Place> places)
      : file_(std::move(file)), places_(std::move(places)) {}

  std::unique_ptr<OutputFile> file_;
  absl::flat_hash_map<std::string, Place> places_;
};

}  // namespace

bool is_safetensors(const std::string& path) {
  const auto file = InputFile::open(path);
  uint64_t size = 0;
  char first = 0;
  return file.ok() && (*file)->read(0, {reinterpret_cast<char*>(&size), sizeof(size)}).ok() &&
         (*file)->read(sizeof(size), {&first, 1}).ok() && first == '{' && size <= kHeaderBytesMax;
}

Result<std::unique_ptr<TensorReader>> open_safetensors(const std::string& path) {
  return Safetensors::open(path);
}

Result<std::unique_ptr<TensorWriter>> create_safetensors(const std::string& path,
                                                         std::vector<StoredTensor> tensors) {
  return SafetensorsWriter::create(path, std::move(tensors));
}

}  // namespace sidereal::ckpt
