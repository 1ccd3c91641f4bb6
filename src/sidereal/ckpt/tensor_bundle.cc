#include "sidereal/ckpt/tensor_bundle.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <map>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "sidereal/base/bytes.h"
#include "sidereal/base/check.h"
#include "sidereal/base/strings.h"
#include "sidereal/ckpt/file.h"
#include "sidereal/ckpt/table_file.h"
#include "sidereal/ckpt/tensor_bundle.pb.h"
#include "sidereal/parse/crc32c.h"
#include "sidereal/tensor/strings.h"

namespace sidereal::ckpt {
namespace {

using base::data_loss;
using base::invalid_argument;
using tensor::DType;
using tensor::Shape;
using tensor::Tensor;

constexpr int kBundleVersion = 1;
constexpr int kShardsMax = 1 << 20;
constexpr int kRankMax = 254;        // TensorFlow's.
constexpr size_t kSlicesMax = 2048;  // Of one tensor.
constexpr size_t kPieceBytes = size_t{1} << 20;

/// TensorFlow's numbers of dtypes (types.proto: DataType).
struct BundleDType {
  int number;
  DType dtype;
};
constexpr BundleDType kDTypes[] = {
    {1, DType::kFloat32}, {2, DType::kFloat64},   {3, DType::kInt32},   {4, DType::kUInt8},
    {5, DType::kInt16},   {6, DType::kInt8},      {7, DType::kString},  {9, DType::kInt64},
    {10, DType::kBool},   {14, DType::kBFloat16}, {17, DType::kUInt16}, {19, DType::kFloat16},
    {22, DType::kUInt32}, {23, DType::kUInt64}};

DType dtype_of(int number) {
  for (const BundleDType& one : kDTypes) {
    if (one.number == number) return one.dtype;
  }
  return DType::kInvalid;
}

int number_of(DType dtype) {
  for (const BundleDType& one : kDTypes) {
    if (one.dtype == dtype) return one.number;
  }
  return 0;
}

std::string data_path(const std::string& prefix, int shard, int shards) {
  return fmt::format("{}.data-{:05}-of-{:05}", prefix, shard, shards);
}

// ---- keys of slices (TensorFlow: OrderedCode) ---------------------------------------------------

void put_number(uint64_t value, std::string* out) {
  const int bytes = (std::bit_width(value) + 7) / 8;
  out->push_back(static_cast<char>(bytes));
  for (int i = bytes; i-- > 0;) out->push_back(static_cast<char>(value >> (8 * i)));
}

void put_ordered_string(std::string_view text, std::string* out) {
  for (const char c : text) {
    out->push_back(c);
    if (c == '\0') out->push_back('\xff');
    if (c == '\xff') out->push_back('\0');
  }
  out->append("\0\1", 2);
}

/// The first bits are as many ones as there are bytes; of a negative number they are zeros.
void put_signed(int64_t value, std::string* out) {
  const auto bits = static_cast<uint64_t>(value < 0 ? ~value : value);
  const int bytes = std::bit_width(bits) / 7 + 1;
  std::string all(2, value < 0 ? '\xff' : '\0');
  for (int i = 8; i-- > 0;) all.push_back(static_cast<char>(value >> (8 * i)));
  std::string tail = all.substr(all.size() - static_cast<size_t>(bytes));
  for (int bit = 0; bit < bytes; ++bit) {
    auto& byte = tail[static_cast<size_t>(bit / 8)];
    byte = static_cast<char>(byte ^ (0x80 >> (bit % 8)));
  }
  *out += tail;
}

/// In checksums of strings a length counts as 4 bytes as long as it fits into them.
uint32_t crc_of_length(uint64_t length, uint32_t before) {
  base::ByteWriter bytes;
  if (length <= std::numeric_limits<uint32_t>::max()) {
    bytes.put(static_cast<uint32_t>(length));
  } else {
    bytes.put(length);
  }
  return parse::crc32c(bytes.bytes(), before);
}

// ---- reading ------------------------------------------------------------------------------------

/// Where a slice of a tensor lies.
struct Piece {
  Slice slice;
  int shard = 0;
  uint64_t at = 0;
  uint64_t size = 0;
  uint32_t crc = 0;
};

Result<Shape> shape_of_entry(const bundle::Shape& shape) {
  if (shape.unknown_rank() || shape.dim_size() > kRankMax) return data_loss("it has no shape");
  Shape out;
  for (const auto& dim : shape.dim()) out.append(dim.size());
  SR_RETURN_IF_ERROR(check_slice(whole_slice(out), out));
  return out;
}

Result<Slice> slice_of(const bundle::Slice& slice, const Shape& whole) {
  Slice out;
  if (slice.extent_size() != whole.rank()) return data_loss("a slice has another rank");
  for (int i = 0; i < slice.extent_size(); ++i) {
    const auto& extent = slice.extent(i);
    const bool has_length = extent.kind_case() == bundle::Slice::Extent::kLength;
    out.push_back(has_length ? Range{.start = extent.start(), .count = extent.length()}
                             : Range{.start = 0, .count = whole.dim(i)});
  }
  SR_RETURN_IF_ERROR(check_slice(out, whole));
  return out;
}

/// Each element of the whole is in exactly one slice.
Status check_cover(const std::vector<Slice>& slices, const Shape& whole) {
  int64_t elements = 0;
  for (size_t i = 0; i < slices.size(); ++i) {
    const int64_t more = shape_of(slices[i]).num_elements();
    if (more > whole.num_elements() - elements) return data_loss("its slices overlap");
    elements += more;
    for (size_t j = 0; j < i; ++j) {
      if (num_common(slices[i], slices[j]) > 0) return data_loss("its slices overlap");
    }
  }
  if (elements == whole.num_elements()) return {};
  return data_loss("its slices have {} of its {} elements", elements, whole.num_elements());
}

/// What the index says: tensors, and where their pieces lie.
struct Index {
  int shards = 0;
  std::vector<StoredTensor> tensors;
  absl::flat_hash_map<std::string, std::vector<Piece>> pieces;  ///< By names of tensors.
};

/// Gathers an Index from the entries of a table. Thread: core-local.
class IndexReader {
 public:
  Status add(std::string_view key, std::string_view value) {
    if (!has_header_) return read_header(key, value);
    bundle::Entry entry;
    if (value.size() > std::numeric_limits<int>::max() ||
        !entry.ParseFromArray(value.data(), static_cast<int>(value.size()))) {
      return data_loss("the entry of '{}' cannot be read", base::message_text(key, 200));
    }
    // Keys of slices begin with a number, 0; no name does.
    if (key[0] == '\0') {
      parts_.emplace(key, std::move(entry));
      return {};
    }
    const Status status = add_tensor(key, entry);
    if (status.ok()) return {};
    return data_loss("the tensor '{}': {}", base::message_text(key, 200), base::message_of(status));
  }

  Result<Index> finish() && {
    if (!has_header_) return data_loss("it has no header");
    return std::move(out_);
  }

 private:
  Status read_header(std::string_view key, std::string_view value) {
    bundle::Header header;
    if (!key.empty() || value.size() > kPieceBytes ||
        !header.ParseFromArray(value.data(), static_cast<int>(value.size()))) {
      return data_loss("it has no header");
    }
    if (header.endianness() != 0) {
      return base::unimplemented("its numbers are big-endian; write it on another machine");
    }
    if (header.version().min_consumer() > kBundleVersion) {
      return base::unimplemented("it needs readers of version {}, and this is one of version {}",
                                 header.version().min_consumer(), kBundleVersion);
    }
    if (header.num_shards() < 1 || header.num_shards() > kShardsMax) {
      return data_loss("it has {} data files", header.num_shards());
    }
    out_.shards = header.num_shards();
    has_header_ = true;
    return {};
  }

  Result<Piece> piece_of(const bundle::Entry& entry, DType dtype, Slice slice) const {
    Piece piece{.slice = std::move(slice), .crc = entry.crc32c()};
    if (entry.shard_id() < 0 || entry.shard_id() >= out_.shards || entry.offset() < 0 ||
        entry.size() < 0) {
      return data_loss("it lies nowhere");
    }
    piece.shard = entry.shard_id();
    piece.at = static_cast<uint64_t>(entry.offset());
    piece.size = static_cast<uint64_t>(entry.size());
    const auto elements = static_cast<uint64_t>(shape_of(piece.slice).num_elements());
    const bool is_string = dtype == DType::kString;
    uint64_t bytes = 0;
    const bool is_huge =
        __builtin_mul_overflow(elements, is_string ? 1 : tensor::size_of(dtype), &bytes);
    // Of strings there is at least a byte each, that of their lengths.
    if (is_huge || (is_string ? piece.size < bytes : piece.size != bytes)) {
      return data_loss("{} elements of {} do not take {} bytes", elements, tensor::name_of(dtype),
                       piece.size);
    }
    return piece;
  }

  Status add_tensor(std::string_view name, const bundle::Entry& entry) {
    StoredTensor stored{.name = std::string(name), .dtype = dtype_of(entry.dtype())};
    SR_ASSIGN_OR_RETURN(stored.shape, shape_of_entry(entry.shape()));
    if (stored.dtype == DType::kInvalid) {
      out_.tensors.push_back(std::move(stored));
      return {};
    }
    std::vector<Piece> pieces;
    if (static_cast<size_t>(entry.slices_size()) > kSlicesMax) return data_loss("many slices");
    for (const bundle::Slice& given : entry.slices()) {
      SR_ASSIGN_OR_RETURN(Slice slice, slice_of(given, stored.shape));
      const auto found = parts_.find(key_of(name, given));
      if (found == parts_.end()) {
        return data_loss("its slice '{}' is missing", format_slice(slice, stored.shape));
      }
      if (found->second.dtype() != entry.dtype()) return data_loss("a slice has another dtype");
      SR_ASSIGN_OR_RETURN(Piece piece, piece_of(found->second, stored.dtype, slice));
      stored.slices.push_back(std::move(slice));
      pieces.push_back(std::move(piece));
    }
    if (pieces.empty()) {
      SR_ASSIGN_OR_RETURN(pieces.emplace_back(),
                          piece_of(entry, stored.dtype, whole_slice(stored.shape)));
    } else {
      SR_RETURN_IF_ERROR(check_cover(stored.slices, stored.shape));
    }
    out_.pieces.emplace(name, std::move(pieces));
    out_.tensors.push_back(std::move(stored));
    return {};
  }

  /// As bundle_slice_key(), of a slice as it stands in an entry.
  static std::string key_of(std::string_view name, const bundle::Slice& slice) {
    std::string key;
    put_number(0, &key);
    put_ordered_string(name, &key);
    put_number(static_cast<uint64_t>(slice.extent_size()), &key);
    for (const auto& extent : slice.extent()) {
      const bool has_length = extent.kind_case() == bundle::Slice::Extent::kLength;
      put_signed(has_length ? extent.start() : 0, &key);
      put_signed(has_length ? extent.length() : -1, &key);
    }
    return key;
  }

  bool has_header_ = false;
  absl::flat_hash_map<std::string, bundle::Entry> parts_;
  Index out_;
};

class TensorBundle final : public TensorReader {
 public:
  static Result<std::unique_ptr<TensorReader>> open(const std::string& prefix) {
    const std::string path = prefix + ".index";
    SR_ASSIGN_OR_RETURN(const auto file, InputFile::open(path));
    std::string bytes(file->size(), '\0');
    SR_RETURN_IF_ERROR(file->read(0, bytes));
    IndexReader reader;
    const Status read = read_table(bytes, [&](std::string_view key, std::string_view value) {
      return reader.add(key, value);
    });
    if (!read.ok()) return base::with_context(read, path);
    Result<Index> index = std::move(reader).finish();
    if (!index.ok()) return base::with_context(index.status(), path);
    return std::unique_ptr<TensorReader>(new TensorBundle(prefix, *std::move(index)));
  }

 private:
  TensorBundle(std::string prefix, Index index)
      : prefix_(std::move(prefix)), shards_(index.shards), pieces_(std::move(index.pieces)) {
    set_tensors(std::move(index.tensors));
  }

  Result<const InputFile*> data(int shard) {
    auto& file = files_[shard];
    if (file == nullptr) {
      const std::string path = data_path(prefix_, shard, shards_);
      auto opened = InputFile::open(path);
      if (opened.status().code() == StatusCode::kNotFound) {
        return base::not_found("{}: a data file of this checkpoint is missing: copy all of {}.*",
                               path, prefix_);
      }
      SR_ASSIGN_OR_RETURN(file, std::move(opened));
    }
    return file.get();
  }

  [[nodiscard]] Status damaged(const StoredTensor& stored, const Piece& piece,
                               std::string_view why) const {
    return data_loss("{}: the tensor '{}', bytes {} to {}: {}",
                     data_path(prefix_, piece.shard, shards_), stored.name, piece.at,
                     piece.at + piece.size, why);
  }

  /// Goes once through all bytes of a piece of plain elements: the run of the whole tensor is read
  /// into `out`, if there is one.
  Status read_piece(const StoredTensor& stored, const Piece& piece, std::byte* out) {
    SR_ASSIGN_OR_RETURN(const InputFile* file, data(piece.shard));
    RunReader reader(file);
    const size_t size = tensor::size_of(stored.dtype);
    uint32_t crc = 0;
    std::string held;
    const auto use = [&](const Run& run) -> Status {
      const uint64_t bytes = static_cast<uint64_t>(run.count) * size;
      for (uint64_t done = 0; done < bytes;) {
        const uint64_t some = std::min<uint64_t>(bytes - done, kPieceBytes);
        char* to = nullptr;
        if (out == nullptr) {
          held.resize(some);
          to = held.data();
        } else {
          to = reinterpret_cast<char*>(out) + static_cast<uint64_t>(run.from) * size + done;
        }
        SR_RETURN_IF_ERROR(
            reader.read(piece.at + static_cast<uint64_t>(run.to) * size + done, {to, some}));
        crc = parse::crc32c({to, some}, crc);
        done += some;
      }
      return {};
    };
    SR_RETURN_IF_ERROR(out == nullptr ? use(Run{.count = shape_of(piece.slice).num_elements()})
                                      : for_each_run(whole_slice(stored.shape), piece.slice, use));
    if (parse::masked_crc(crc) == piece.crc) return {};
    return damaged(stored, piece, "its checksum is wrong");
  }

  /// The strings of a piece, its checksums checked.
  Result<Tensor> read_strings(const StoredTensor& stored, const Piece& piece) {
    SR_ASSIGN_OR_RETURN(const InputFile* file, data(piece.shard));
    SR_RETURN_IF_ERROR(file->check(piece.at, piece.size));
    std::string bytes(piece.size, '\0');
    SR_RETURN_IF_ERROR(file->read(piece.at, bytes));
    const Shape shape = shape_of(piece.slice);
    const auto count = static_cast<size_t>(shape.num_elements());
    std::string_view left = bytes;
    std::vector<uint64_t> lengths(count);
    uint32_t crc = 0;
    uint64_t all = 0;
    for (uint64_t& length : lengths) {
      if (!take_varint(&left, &length) || length > left.size() || all > left.size()) {
        return damaged(stored, piece, "its lengths cannot be");
      }
      all += length;
      crc = crc_of_length(length, crc);
    }
    uint32_t of_lengths = 0;
    base::ByteReader fields(left);
    if (!fields.get(&of_lengths).ok() || of_lengths != parse::masked_crc(crc)) {
      return damaged(stored, piece, "the checksum of its lengths is wrong");
    }
    // The bytes of this checksum and of all strings.
    if (parse::masked_crc(parse::crc32c(left, crc)) != piece.crc) {
      return damaged(stored, piece, "its checksum is wrong");
    }
    left.remove_prefix(sizeof(of_lengths));
    if (all != left.size()) return damaged(stored, piece, "its strings have other lengths");
    tensor::StringsBuilder strings;
    strings.reserve(count, left.size());
    for (const uint64_t length : lengths) {
      strings.add(left.substr(0, length));
      left.remove_prefix(length);
    }
    return std::move(strings).finish(shape);
  }

  /// `all`: pieces that have nothing of the part are looked at, too.
  Result<Tensor> strings_of(const StoredTensor& stored, const Slice& part, bool all) {
    SR_ASSIGN_OR_RETURN(Tensor out, tensor_for(DType::kString, shape_of(part)));
    for (const Piece& piece : pieces_.at(stored.name)) {
      if (!all && num_common(piece.slice, part) == 0) continue;
      SR_ASSIGN_OR_RETURN(const Tensor strings, read_strings(stored, piece));
      copy_common(piece.slice, strings, part, &out);
    }
    return out;
  }

  Result<Tensor> read_whole(const StoredTensor& stored) override {
    if (stored.dtype == DType::kString) {
      return strings_of(stored, whole_slice(stored.shape), /*all=*/true);
    }
    // Memory is taken for what is in files, not for what an index says.
    for (const Piece& piece : pieces_.at(stored.name)) {
      SR_ASSIGN_OR_RETURN(const InputFile* file, data(piece.shard));
      SR_RETURN_IF_ERROR(file->check(piece.at, piece.size));
    }
    SR_ASSIGN_OR_RETURN(Tensor out, tensor_for(stored.dtype, stored.shape));
    for (const Piece& piece : pieces_.at(stored.name)) {
      SR_RETURN_IF_ERROR(read_piece(stored, piece, out.raw()));
    }
    return out;
  }

  Result<Tensor> read_part(const StoredTensor& stored, const Slice& part) override {
    if (stored.dtype == DType::kString) return strings_of(stored, part, /*all=*/false);
    for (const Piece& piece : pieces_.at(stored.name)) {
      if (num_common(piece.slice, part) == 0) continue;
      SR_ASSIGN_OR_RETURN(const InputFile* file, data(piece.shard));
      SR_RETURN_IF_ERROR(file->check(piece.at, piece.size));
    }
    SR_ASSIGN_OR_RETURN(Tensor out, tensor_for(stored.dtype, shape_of(part)));
    const size_t size = tensor::size_of(stored.dtype);
    for (const Piece& piece : pieces_.at(stored.name)) {
      if (num_common(piece.slice, part) == 0) continue;
      SR_ASSIGN_OR_RETURN(const InputFile* file, data(piece.shard));
      RunReader reader(file);
      SR_RETURN_IF_ERROR(for_each_run(piece.slice, part, [&](const Run& run) {
        return reader.read(piece.at + static_cast<uint64_t>(run.from) * size,
                           {reinterpret_cast<char*>(out.raw()) + static_cast<size_t>(run.to) * size,
                            static_cast<size_t>(run.count) * size});
      }));
    }
    return out;
  }

  Status verify_stored(const StoredTensor& stored) override {
    for (const Piece& piece : pieces_.at(stored.name)) {
      if (stored.dtype == DType::kString) {
        SR_RETURN_IF_ERROR(read_strings(stored, piece).status());
      } else {
        SR_RETURN_IF_ERROR(read_piece(stored, piece, nullptr));
      }
    }
    return {};
  }

  const std::string prefix_;
  const int shards_;
  const absl::flat_hash_map<std::string, std::vector<Piece>> pieces_;
  std::map<int, std::unique_ptr<InputFile>> files_;
};

// ---- writing ------------------------------------------------------------------------------------

class TensorBundleWriter final : public TensorWriter {
 public:
  static Result<std::unique_ptr<TensorWriter>> create(const std::string& prefix) {
    SR_ASSIGN_OR_RETURN(auto data, OutputFile::create(data_path(prefix, 0, 1)));
    return std::unique_ptr<TensorWriter>(new TensorBundleWriter(prefix, std::move(data)));
  }

  Status add(const StoredTensor& tensor, const Slice& slice, const Tensor& piece) override {
    if (begun_ == 0 || tensor.name != name_ || slice != slice_) {
      SR_RETURN_IF_ERROR(begin(tensor, slice));
    }
    SR_CHECK(piece.dtype() == tensor.dtype && piece.num_elements() <= missing_);
    missing_ -= piece.num_elements();
    if (tensor.dtype == DType::kString) {
      const auto strings = piece.data<const std::string_view>();
      strings_.insert(strings_.end(), strings.begin(), strings.end());
    } else {
      const auto* bytes = reinterpret_cast<const char*>(piece.raw());
      for (size_t done = 0; done < piece.nbytes();) {
        const std::string_view some(bytes + done, std::min(piece.nbytes() - done, kPieceBytes));
        crc_ = parse::crc32c(some, crc_);
        SR_RETURN_IF_ERROR(data_->append(some));
        done += some.size();
      }
    }
    return missing_ == 0 ? end(tensor) : Status();
  }

  Status finish() override {
    SR_CHECK(missing_ == 0);
    bundle::Header header;
    header.set_num_shards(1);
    header.mutable_version()->set_producer(kBundleVersion);
    entries_[""] = header.SerializeAsString();
    TableBuilder table;
    for (const auto& [key, value] : entries_) table.add(key, value);
    SR_ASSIGN_OR_RETURN(const auto index, OutputFile::create(prefix_ + ".index"));
    SR_RETURN_IF_ERROR(index->append(std::move(table).finish()));
    // Both are whole before either has its name.
    SR_RETURN_IF_ERROR(index->sync());
    SR_RETURN_IF_ERROR(data_->finish());
    return index->finish();
  }

 private:
  TensorBundleWriter(std::string prefix, std::unique_ptr<OutputFile> data)
      : prefix_(std::move(prefix)), data_(std::move(data)) {}

  Status begin(const StoredTensor& tensor, const Slice& slice) {
    SR_CHECK(missing_ == 0 && check_slice(slice, tensor.shape).ok());
    const int number = number_of(tensor.dtype);
    if (number == 0 || tensor.name.empty() || tensor.name[0] == '\0') {
      return invalid_argument("a tensor bundle cannot hold {} under the name '{}'",
                              tensor::name_of(tensor.dtype), base::message_text(tensor.name, 200));
    }
    for (const Range& range : slice) {
      if (range.step == 1) continue;
      return invalid_argument("tensor '{}': a tensor bundle has no slices with steps, such as '{}'",
                              tensor.name, format_slice(slice, tensor.shape));
    }
    ++begun_;
    name_ = tensor.name;
    slice_ = slice;
    missing_ = shape_of(slice).num_elements();
    at_ = data_->size();
    crc_ = 0;
    return {};
  }

  Status end(const StoredTensor& tensor) {
    if (tensor.dtype == DType::kString) SR_RETURN_IF_ERROR(write_strings());
    bundle::Entry entry;
    entry.set_dtype(number_of(tensor.dtype));
    const bool is_one = is_whole(slice_, tensor.shape);
    const Shape shape = shape_of(slice_);
    set_shape(shape, &entry);
    entry.set_offset(static_cast<int64_t>(at_));
    entry.set_size(static_cast<int64_t>(data_->size() - at_));
    entry.set_crc32c(parse::masked_crc(crc_));
    if (is_one) {
      entries_[tensor.name] = entry.SerializeAsString();
      return {};
    }
    entries_[bundle_slice_key(tensor.name, slice_, tensor.shape)] = entry.SerializeAsString();
    bundle::Entry whole;
    // Earlier slices of the tensor have made it already.
    const auto before = entries_.find(tensor.name);
    if (before != entries_.end()) SR_CHECK(whole.ParseFromString(before->second));
    whole.set_dtype(number_of(tensor.dtype));
    set_shape(tensor.shape, &whole);
    bundle::Slice* added = whole.add_slices();
    for (size_t i = 0; i < slice_.size(); ++i) {
      auto* extent = added->add_extent();
      if (slice_[i].count == tensor.shape.dim(static_cast<int>(i))) continue;
      extent->set_start(slice_[i].start);
      extent->set_length(slice_[i].count);
    }
    entries_[tensor.name] = whole.SerializeAsString();
    return {};
  }

  static void set_shape(const Shape& shape, bundle::Entry* entry) {
    entry->mutable_shape()->clear_dim();
    for (const int64_t extent : shape.dims()) entry->mutable_shape()->add_dim()->set_size(extent);
  }

  Status write_strings() {
    std::string lengths;
    for (const std::string& text : strings_) {
      put_varint(text.size(), &lengths);
      crc_ = crc_of_length(text.size(), crc_);
    }
    base::ByteWriter of_lengths;
    of_lengths.put(parse::masked_crc(crc_));
    crc_ = parse::crc32c(of_lengths.bytes(), crc_);
    SR_RETURN_IF_ERROR(data_->append(lengths + of_lengths.bytes()));
    for (const std::string& text : strings_) {
      crc_ = parse::crc32c(text, crc_);
      SR_RETURN_IF_ERROR(data_->append(text));
    }
    strings_.clear();
    return {};
  }

  const std::string prefix_;
  std::unique_ptr<OutputFile> data_;
  std::map<std::string, std::string> entries_;  // In the order of the index.
  int64_t begun_ = 0;
  // The slice that is being written.
  std::string name_;
  Slice slice_;
  int64_t missing_ = 0;  // Elements.
  uint64_t at_ = 0;
  uint32_t crc_ = 0;
  std::vector<std::string> strings_;
};

}  // namespace

std::string bundle_slice_key(std::string_view name, const Slice& slice, const Shape& whole) {
  std::string key;
  put_number(0, &key);
  put_ordered_string(name, &key);
  put_number(slice.size(), &key);
  for (size_t i = 0; i < slice.size(); ++i) {
    const bool is_full = slice[i].count == whole.dim(static_cast<int>(i));
    put_signed(is_full ? 0 : slice[i].start, &key);
    put_signed(is_full ? -1 : slice[i].count, &key);
  }
  return key;
}

bool is_tensor_bundle(const std::string& prefix) {
  const auto file = InputFile::open(prefix + ".index");
  if (!file.ok() || (*file)->size() < kTableFooterBytes) return false;
  std::string footer(kTableFooterBytes, '\0');
  return (*file)->read((*file)->size() - footer.size(), footer).ok() && is_table(footer);
}

Result<std::unique_ptr<TensorReader>> open_tensor_bundle(const std::string& prefix) {
  return TensorBundle::open(prefix);
}

Result<std::unique_ptr<TensorWriter>> create_tensor_bundle(const std::string& prefix) {
  return TensorBundleWriter::create(prefix);
}

}  // namespace sidereal::ckpt
