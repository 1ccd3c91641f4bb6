#include "sidereal/ckpt/npz.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <set>
#include <string_view>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "sidereal/base/bytes.h"
#include "sidereal/base/check.h"
#include "sidereal/base/strings.h"
#include "sidereal/ckpt/file.h"
#include "sidereal/ckpt/internal/zip.h"
#include "sidereal/parse/npy.h"
#include "sidereal/tensor/strings.h"

namespace sidereal::ckpt {
namespace {

using base::data_loss;
using base::invalid_argument;
using internal::ZipEntry;
using internal::ZipMember;
using parse::NpyText;
using tensor::DType;
using tensor::Shape;
using tensor::Tensor;

constexpr std::string_view kSuffix = ".npy";
/// Headers are shorter than the first, those of version 2 with many names may be longer.
constexpr size_t kHeaderBytes = 512;
constexpr size_t kHeaderBytesMax = size_t{128} << 10;

struct NamedDType {
  std::string_view name;
  DType dtype;
};
constexpr NamedDType kDTypes[] = {
    {"<f4", DType::kFloat32},  {"<f8", DType::kFloat64}, {"<i4", DType::kInt32},
    {"<i8", DType::kInt64},    {"|u1", DType::kUInt8},   {"|b1", DType::kBool},
    {"|i1", DType::kInt8},     {"<i2", DType::kInt16},   {"<u2", DType::kUInt16},
    {"<u4", DType::kUInt32},   {"<u8", DType::kUInt64},  {"<f2", DType::kFloat16},
    {"<V2", DType::kBFloat16}, {"|V2", DType::kBFloat16}};

DType dtype_of(std::string_view name) {
  for (const NamedDType& one : kDTypes) {
    if (one.name == name) return one.dtype;
  }
  return DType::kInvalid;
}

/// What stands before the elements of a .npy file, which then begin at a multiple of 64.
std::string npy_header(std::string_view descr, const Shape& shape) {
  std::string extents;
  for (const int64_t extent : shape.dims()) extents += fmt::format("{}, ", extent);
  if (shape.rank() > 1) extents.resize(extents.size() - 2);
  if (shape.rank() == 1) extents.pop_back();
  std::string text =
      fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}", descr, extents);
  constexpr size_t kFront = 10;
  constexpr size_t kMultiple = 64;
  text.resize((kFront + text.size() + 1 + kMultiple - 1) / kMultiple * kMultiple - kFront - 1, ' ');
  text += '\n';
  base::ByteWriter out;
  out.put_bytes(std::string_view("\x93NUMPY\x01\x00", 8));
  out.put(static_cast<uint16_t>(text.size()));
  out.put_bytes(text);
  return out.take();
}

/// Where the elements of an array are, and how they are written.
struct Array {
  ZipEntry entry = {};
  uint64_t data_at = 0;  ///< In the member.
  NpyText text = NpyText::kNone;
  uint64_t room = 0;  ///< Bytes of an element.
  bool fortran_order = false;
};

class Npz final : public TensorReader {
 public:
  static Result<std::unique_ptr<TensorReader>> open(const std::string& path) {
    SR_ASSIGN_OR_RETURN(auto file, InputFile::open(path));
    std::unique_ptr<Npz> made(new Npz(std::move(file)));
    const Status read = made->read_arrays();
    if (!read.ok()) return base::with_context(read, path);
    return std::unique_ptr<TensorReader>(std::move(made));
  }

 private:
  explicit Npz(std::unique_ptr<InputFile> file) : file_(std::move(file)) {}

  Status read_arrays() {
    SR_ASSIGN_OR_RETURN(std::vector<ZipEntry> entries, internal::read_zip(*file_));
    std::vector<StoredTensor> tensors;
    for (ZipEntry& entry : entries) {
      std::string_view name = entry.name;
      if (!name.ends_with(kSuffix)) continue;
      name.remove_suffix(kSuffix.size());
      StoredTensor stored{.name = std::string(name)};
      const std::string member = base::message_text(entry.name, 200);
      const Status read = read_array(std::move(entry), &stored);
      if (!read.ok()) return base::with_context(read, fmt::format("its file '{}'", member));
      tensors.push_back(std::move(stored));
    }
    set_tensors(std::move(tensors));
    return {};
  }

  Result<parse::NpyHeader> header_of(const ZipEntry& entry, size_t bytes) {
    SR_ASSIGN_OR_RETURN(ZipMember member, ZipMember::open(file_.get(), entry));
    std::string begin(std::min<uint64_t>(bytes, entry.size), '\0');
    SR_RETURN_IF_ERROR(member.read(begin));
    return parse::parse_npy_header(begin);
  }

  Status read_array(ZipEntry entry, StoredTensor* out) {
    auto header = header_of(entry, kHeaderBytes);
    if (header.status().code() == StatusCode::kDataLoss) {
      header = header_of(entry, kHeaderBytesMax);
    }
    if (!header.ok()) return data_loss("{}", base::message_of(header.status()));
    Array array{.data_at = header->data_offset, .fortran_order = header->fortran_order};
    out->shape = Shape(header->shape);
    SR_RETURN_IF_ERROR(check_slice(whole_slice(out->shape), out->shape));
    SR_ASSIGN_OR_RETURN(const auto text, parse::parse_npy_text_type(header->descr));
    array.text = text.text;
    out->dtype = text.text == NpyText::kNone ? dtype_of(header->descr) : DType::kString;
    if (out->dtype == DType::kInvalid) return {};
    array.room = text.text == NpyText::kNone ? tensor::size_of(out->dtype)
                                             : static_cast<uint64_t>(text.room);
    uint64_t bytes = 0;
    if (__builtin_mul_overflow(static_cast<uint64_t>(out->shape.num_elements()), array.room,
                               &bytes) ||
        entry.size < array.data_at || bytes != entry.size - array.data_at) {
      return data_loss("its {} bytes are not those of {}{}", entry.size,
                       tensor::name_of(out->dtype), out->shape.to_string());
    }
    array.entry = std::move(entry);
    if (!arrays_.emplace(out->name, std::move(array)).second) {
      return data_loss("it is there twice");
    }
    return {};
  }

  /// Gives `use` the bytes of the elements that are in `part`, run by run.
  Status read_runs(const StoredTensor& stored, const Slice& part,
                   absl::FunctionRef<char*(const Run& run, uint64_t bytes)> room_for, bool to_end) {
    const Array& array = arrays_.at(stored.name);
    if (array.fortran_order && stored.shape.rank() > 1) {
      return invalid_argument(
          "{}: the array '{}' is in Fortran order; save numpy.ascontiguousarray(x)", file_->path(),
          stored.name);
    }
    Status status = [&]() -> Status {
      SR_ASSIGN_OR_RETURN(ZipMember * opened, member_for(stored, array, part, to_end));
      ZipMember& member = *opened;
      SR_RETURN_IF_ERROR(for_each_run(whole_slice(stored.shape), part, [&](const Run& run) {
        const uint64_t bytes = static_cast<uint64_t>(run.count) * array.room;
        const Status moved =
            member.seek(array.data_at + static_cast<uint64_t>(run.from) * array.room, to_end);
        return moved.ok() ? member.read({room_for(run, bytes), bytes}) : moved;
      }));
      return to_end ? member.finish() : Status();
    }();
    if (status.ok() || status.code() != StatusCode::kDataLoss) return status;
    return base::with_context(status, fmt::format("{}: '{}'", file_->path(), array.entry.name));
  }

  /// The member, before or at the first element of the part. Compressed arrays that are read part
  /// by part are read once.
  Result<ZipMember*> member_for(const StoredTensor& stored, const Array& array, const Slice& part,
                                bool from_begin) {
    uint64_t first = UINT64_MAX;
    const Status found = for_each_run(whole_slice(stored.shape), part, [&](const Run& run) {
      first = array.data_at + static_cast<uint64_t>(run.from) * array.room;
      return base::cancelled("that is all");
    });
    const bool goes_on = !found.ok() && !from_begin && member_ != nullptr &&
                         member_name_ == stored.name && member_->at() <= first;
    if (!goes_on) {
      SR_ASSIGN_OR_RETURN(ZipMember opened, ZipMember::open(file_.get(), array.entry));
      member_ = std::make_unique<ZipMember>(std::move(opened));
      member_name_ = stored.name;
    }
    return member_.get();
  }

  Result<Tensor> read_any(const StoredTensor& stored, const Slice& part, bool to_end) {
    const Array& array = arrays_.at(stored.name);
    if (array.text == NpyText::kNone) {
      SR_ASSIGN_OR_RETURN(Tensor out, tensor_for(stored.dtype, shape_of(part)));
      SR_RETURN_IF_ERROR(read_runs(
          stored, part,
          [&](const Run& run, uint64_t) {
            return reinterpret_cast<char*>(out.raw()) + static_cast<uint64_t>(run.to) * array.room;
          },
          to_end));
      return out;
    }
    const auto count = static_cast<uint64_t>(shape_of(part).num_elements());
    SR_ASSIGN_OR_RETURN(const Tensor rooms,
                        tensor_for(DType::kUInt8, Shape{static_cast<int64_t>(count * array.room)}));
    SR_RETURN_IF_ERROR(read_runs(
        stored, part,
        [&](const Run& run, uint64_t) {
          return reinterpret_cast<char*>(rooms.raw()) + static_cast<uint64_t>(run.to) * array.room;
        },
        to_end));
    tensor::StringsBuilder strings;
    std::string text;
    for (uint64_t i = 0; i < count; ++i) {
      text.clear();
      const Status read =
          parse::append_text(array.text, {rooms.raw() + i * array.room, array.room}, &text);
      if (!read.ok()) return base::with_context(read, fmt::format("the array '{}'", stored.name));
      strings.add(text);
    }
    return std::move(strings).finish(shape_of(part));
  }

  Result<Tensor> read_whole(const StoredTensor& stored) override {
    return read_any(stored, whole_slice(stored.shape), /*to_end=*/true);
  }
  Result<Tensor> read_part(const StoredTensor& stored, const Slice& part) override {
    return read_any(stored, part, /*to_end=*/false);
  }

  Status verify_stored(const StoredTensor& stored) override {
    const Array& array = arrays_.at(stored.name);
    SR_ASSIGN_OR_RETURN(ZipMember member, ZipMember::open(file_.get(), array.entry));
    Status read = member.finish();
    if (read.code() != StatusCode::kDataLoss) return read;
    return base::with_context(read, fmt::format("{}: '{}'", file_->path(), array.entry.name));
  }

  const std::unique_ptr<InputFile> file_;
  absl::flat_hash_map<std::string, Array> arrays_;
  std::unique_ptr<ZipMember> member_;  // The one that was read last.
  std::string member_name_;            // The tensor in `member_`.
};

class NpzWriter final : public TensorWriter {
 public:
  static Result<std::unique_ptr<TensorWriter>> create(const std::string& path) {
    SR_ASSIGN_OR_RETURN(auto file, OutputFile::create(path));
    return std::unique_ptr<TensorWriter>(new NpzWriter(std::move(file)));
  }

  Status add(const StoredTensor& tensor, const Slice& slice, const Tensor& piece) override {
    if (!is_whole(slice, tensor.shape)) {
      return invalid_argument("tensor '{}': npz has no slices", tensor.name);
    }
    if (!is_begun_ || tensor.name != name_) SR_RETURN_IF_ERROR(begin(tensor));
    SR_CHECK(piece.dtype() == tensor.dtype && piece.num_elements() <= missing_);
    missing_ -= piece.num_elements();
    if (tensor.dtype == DType::kString) {
      for (const std::string_view text : piece.data<const std::string_view>()) {
        if (text.ends_with('\0')) {
          return invalid_argument("tensor '{}': a string ends with a NUL, which npz does not keep",
                                  tensor.name);
        }
        strings_.emplace_back(text);
      }
      return missing_ == 0 ? write_strings(tensor) : Status();
    }
    SR_RETURN_IF_ERROR(zip_.append({reinterpret_cast<const char*>(piece.raw()), piece.nbytes()}));
    return missing_ == 0 ? end() : Status();
  }

  Status finish() override {
    SR_CHECK(missing_ == 0);
    SR_RETURN_IF_ERROR(zip_.finish());
    return file_->finish();
  }

 private:
  explicit NpzWriter(std::unique_ptr<OutputFile> file)
      : file_(std::move(file)), zip_(file_.get()) {}

  Status begin(const StoredTensor& tensor) {
    SR_CHECK(missing_ == 0);
    if (tensor.name.empty() || !names_.insert(tensor.name).second) {
      return invalid_argument("an npz cannot hold a tensor of the name '{}'", tensor.name);
    }
    is_begun_ = true;
    name_ = tensor.name;
    missing_ = tensor.shape.num_elements();
    if (tensor.dtype == DType::kString) return {};
    for (const NamedDType& one : kDTypes) {
      if (one.dtype != tensor.dtype) continue;
      const std::string header = npy_header(one.name, tensor.shape);
      const uint64_t bytes = static_cast<uint64_t>(missing_) * tensor::size_of(tensor.dtype);
      SR_RETURN_IF_ERROR(zip_.begin(name_ + std::string(kSuffix), header.size() + bytes));
      return zip_.append(header);
    }
    return invalid_argument("tensor '{}': npz has no {}", name_, tensor::name_of(tensor.dtype));
  }

  Status write_strings(const StoredTensor& tensor) {
    size_t room = 1;
    for (const std::string& text : strings_) room = std::max(room, text.size());
    const std::string header = npy_header(fmt::format("|S{}", room), tensor.shape);
    SR_RETURN_IF_ERROR(
        zip_.begin(name_ + std::string(kSuffix), header.size() + room * strings_.size()));
    SR_RETURN_IF_ERROR(zip_.append(header));
    for (std::string& text : strings_) {
      text.resize(room);
      SR_RETURN_IF_ERROR(zip_.append(text));
    }
    strings_.clear();
    return end();
  }

  Status end() { return zip_.end(); }

  std::unique_ptr<OutputFile> file_;
  internal::ZipWriter zip_;
  std::set<std::string> names_;
  // The array that is being written.
  bool is_begun_ = false;
  std::string name_;
  int64_t missing_ = 0;  // Elements.
  std::vector<std::string> strings_;
};

}  // namespace

bool is_npz(const std::string& path) {
  const auto file = InputFile::open(path);
  std::array<char, 4> first{};
  if (!file.ok() || !(*file)->read(0, first).ok()) return false;
  const std::string_view bytes(first.data(), first.size());
  return bytes == "PK\x03\x04" || bytes == "PK\x05\x06";
}

Result<std::unique_ptr<TensorReader>> open_npz(const std::string& path) { return Npz::open(path); }

Result<std::unique_ptr<TensorWriter>> create_npz(const std::string& path) {
  return NpzWriter::create(path);
}

}  // namespace sidereal::ckpt
