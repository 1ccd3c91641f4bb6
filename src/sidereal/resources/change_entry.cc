#include "sidereal/resources/change_entry.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "sidereal/base/check.h"
#include "sidereal/base/hash.h"
#include "sidereal/tensor/strings.h"

namespace sidereal::resources {

using base::ByteReader;
using base::ByteWriter;
using base::data_loss;
using tensor::DType;
using tensor::Shape;
using tensor::Tensor;

namespace {

constexpr std::string_view kMagic = "SRCL";
constexpr uint16_t kFormat = 1;
constexpr uint32_t kNameBytesMax = 4096;
constexpr uint16_t kRankMax = 32;
constexpr uint8_t kEnd = 0;
constexpr int kGroupBits = 7;
constexpr uint8_t kMore = 0x80;

void put_gap(ByteWriter* out, uint64_t gap) {
  for (; gap >= kMore; gap >>= kGroupBits) out->put(static_cast<uint8_t>(gap | kMore));
  out->put(static_cast<uint8_t>(gap));
}

Status get_gap(ByteReader* in, uint64_t* out) {
  *out = 0;
  for (int shift = 0; shift < 64; shift += kGroupBits) {
    uint8_t group = 0;
    SR_RETURN_IF_ERROR(in->get(&group));
    const uint64_t bits = group & (kMore - 1U);
    if (bits << shift >> shift != bits) break;
    *out |= bits << shift;
    if ((group & kMore) != 0) continue;
    if (group == 0 && shift > 0)
      return data_loss("a number of a row has more groups than it needs");
    return {};
  }
  return data_loss("a number of a row has more than 64 bits");
}

/// The product of `elements` and the bytes of each; kDataLoss when it has no 63 bits.
Result<uint64_t> bytes_of(DType dtype, std::span<const int64_t> dims) {
  auto out = static_cast<int64_t>(tensor::size_of(dtype));
  for (const int64_t extent : dims) {
    if (__builtin_mul_overflow(out, extent, &out)) return data_loss("too many elements");
  }
  return static_cast<uint64_t>(out);
}

Status get_dtype(ByteReader* in, DType* out) {
  uint8_t dtype = 0;
  SR_RETURN_IF_ERROR(in->get(&dtype));
  *out = static_cast<DType>(dtype);
  if (!tensor::is_valid(*out)) return data_loss("dtype {}", dtype);
  return {};
}

Status get_type(ByteReader* in, DType* dtype, Shape* shape) {
  SR_RETURN_IF_ERROR(get_dtype(in, dtype));
  uint16_t rank = 0;
  SR_RETURN_IF_ERROR(in->get(&rank));
  if (rank > kRankMax) return data_loss("{} dimensions", rank);
  // Extents behind a 0 count as well, so that any part of the shape has a size.
  int64_t nonzero = static_cast<int64_t>(tensor::size_of(*dtype));
  for (uint16_t i = 0; i < rank; ++i) {
    int64_t extent = 0;
    SR_RETURN_IF_ERROR(in->get(&extent));
    if (extent < 0) return data_loss("extent {}", extent);
    if (__builtin_mul_overflow(nonzero, std::max<int64_t>(extent, 1), &nonzero)) {
      return data_loss("too many elements");
    }
    shape->append(extent);
  }
  return {};
}

Status get_bytes(ByteReader* in, std::string_view* out) {
  uint64_t bytes = 0;
  SR_RETURN_IF_ERROR(in->get(&bytes));
  SR_ASSIGN_OR_RETURN(*out, in->take(bytes));
  return {};
}

Status get_rows(ByteReader* in, int64_t rows_max, const std::vector<int64_t>* last,
                std::vector<int64_t>* out) {
  uint8_t are_last = 0;
  SR_RETURN_IF_ERROR(in->get(&are_last));
  if (are_last > 1) return data_loss("rows of kind {}", are_last);
  if (are_last == 1) {
    if (last == nullptr) return data_loss("the rows of a section before, and there is none");
    *out = *last;
  } else {
    uint64_t count = 0;
    std::string_view bytes;
    SR_RETURN_IF_ERROR(in->get(&count));
    SR_RETURN_IF_ERROR(get_bytes(in, &bytes));
    if (count > bytes.size()) return data_loss("{} rows in {} bytes", count, bytes.size());
    ByteReader gaps(bytes);
    out->reserve(count);
    uint64_t next = 0;
    for (uint64_t i = 0; i < count; ++i) {
      uint64_t gap = 0;
      SR_RETURN_IF_ERROR(get_gap(&gaps, &gap));
      if (__builtin_add_overflow(next, gap, &next) ||
          next >= static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
        return data_loss("a number of a row has more than 63 bits");
      }
      out->push_back(static_cast<int64_t>(next++));
    }
    if (gaps.remaining() > 0) return data_loss("{} bytes after numbers of rows", gaps.remaining());
  }
  if (!out->empty() && out->back() >= rows_max) {
    return data_loss("row {} of {}", out->back(), rows_max);
  }
  return {};
}

/// The tensor that `bytes` are the elements of.
Result<Tensor> tensor_from(DType dtype, const Shape& shape, std::string_view bytes) {
  if (dtype == DType::kString) return tensor::strings_from_bytes(bytes, shape);
  SR_ASSIGN_OR_RETURN(const uint64_t needed, bytes_of(dtype, shape.dims()));
  if (needed != bytes.size())
    return data_loss("{} bytes where {} are needed", bytes.size(), needed);
  Tensor out = Tensor::empty(dtype, shape);
  if (needed > 0) std::memcpy(out.raw(), bytes.data(), needed);
  return out;
}

Status check_strings(std::string_view bytes, const Shape& shape) {
  uint64_t count = 1;
  for (const int64_t extent : shape.dims()) count *= static_cast<uint64_t>(extent);
  if (count > bytes.size() / sizeof(uint64_t)) {
    return data_loss("{} strings in {} bytes", count, bytes.size());
  }
  return {};
}

/// `count` keys, or values of keys.
Result<Tensor> get_elements(ByteReader* in, DType dtype, uint64_t count, const Shape& row) {
  std::string_view bytes;
  SR_RETURN_IF_ERROR(get_bytes(in, &bytes));
  if (count > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    return data_loss("{} keys", count);
  }
  Shape shape{static_cast<int64_t>(count)};
  for (const int64_t extent : row.dims()) shape.append(extent);
  if (dtype == DType::kString) SR_RETURN_IF_ERROR(check_strings(bytes, shape));
  return tensor_from(dtype, shape, bytes);
}

Status get_keys(ByteReader* in, Section* out) {
  DType key = DType::kInvalid;
  SR_RETURN_IF_ERROR(get_dtype(in, &key));
  if (key != DType::kInt32 && key != DType::kInt64 && key != DType::kString) {
    return data_loss("keys of {}", tensor::name_of(key));
  }
  SR_RETURN_IF_ERROR(get_type(in, &out->dtype, &out->shape));
  if (out->dtype == DType::kString && out->shape.rank() > 0) return data_loss("rows of strings");
  uint64_t count = 0;
  SR_RETURN_IF_ERROR(in->get(&count));
  SR_ASSIGN_OR_RETURN(out->keys, get_elements(in, key, count, Shape()));
  SR_ASSIGN_OR_RETURN(out->values, get_elements(in, out->dtype, count, out->shape));
  SR_RETURN_IF_ERROR(in->get(&count));
  SR_ASSIGN_OR_RETURN(out->removed, get_elements(in, key, count, Shape()));
  return {};
}

Status get_made(ByteReader* in, std::vector<NotedChange>* out) {
  uint64_t count = 0;
  SR_RETURN_IF_ERROR(in->get(&count));
  if (count > in->remaining() / (3 * sizeof(uint64_t))) return data_loss("{} changes", count);
  out->resize(count);
  for (NotedChange& one : *out) {
    SR_RETURN_IF_ERROR(in->get(&one.closure.client));
    SR_RETURN_IF_ERROR(in->get(&one.closure.closure));
    SR_RETURN_IF_ERROR(in->get(&one.change));
  }
  return {};
}

Status get_value(ByteReader* in, Section* out) {
  SR_RETURN_IF_ERROR(get_type(in, &out->dtype, &out->shape));
  SR_RETURN_IF_ERROR(get_bytes(in, &out->bytes));
  if (out->dtype == DType::kString) return check_strings(out->bytes, out->shape);
  SR_ASSIGN_OR_RETURN(const uint64_t needed, bytes_of(out->dtype, out->shape.dims()));
  if (needed == out->bytes.size()) return {};
  return data_loss("{} bytes of a value of {}", out->bytes.size(), needed);
}

Status get_changed(ByteReader* in, const std::vector<int64_t>* last, Section* out) {
  SR_RETURN_IF_ERROR(get_type(in, &out->dtype, &out->shape));
  if (out->shape.rank() == 0 || out->dtype == DType::kString) return data_loss("it has no rows");
  SR_RETURN_IF_ERROR(get_rows(in, out->shape.dim(0), last, &out->rows));
  SR_RETURN_IF_ERROR(get_bytes(in, &out->bytes));
  SR_ASSIGN_OR_RETURN(uint64_t needed, bytes_of(out->dtype, out->shape.dims().subspan(1)));
  // So that a section takes no more memory than its bytes say, whatever rows it refers to.
  if (needed == 0) return data_loss("rows without elements");
  if (__builtin_mul_overflow(needed, out->rows.size(), &needed) || needed != out->bytes.size()) {
    return data_loss("{} bytes of {} rows", out->bytes.size(), out->rows.size());
  }
  return {};
}

Status get_pushed(ByteReader* in, PushedSoFar* out) {
  uint32_t lane = 0;
  SR_RETURN_IF_ERROR(in->get(&out->life));
  SR_RETURN_IF_ERROR(in->get(&lane));
  SR_RETURN_IF_ERROR(in->get(&out->number));
  SR_RETURN_IF_ERROR(in->get(&out->pushes));
  SR_RETURN_IF_ERROR(in->get(&out->rows));
  if (lane >= static_cast<uint32_t>(PushCounts::kLanesMax)) {
    return data_loss("pushes to lane {}", lane);
  }
  out->lane = static_cast<int>(lane);
  return {};
}

Status get_section(ByteReader* in, const std::vector<int64_t>* last, Section* out) {
  uint32_t name_bytes = 0;
  SR_RETURN_IF_ERROR(in->get(&name_bytes));
  if (name_bytes > kNameBytesMax) return data_loss("a name of {} bytes", name_bytes);
  SR_ASSIGN_OR_RETURN(out->name, in->take(name_bytes));
  SR_RETURN_IF_ERROR(in->get(&out->home));
  switch (out->kind) {
    case SectionKind::kValue:
      return get_value(in, out);
    case SectionKind::kRows:
      return get_changed(in, last, out);
    case SectionKind::kGone:
      return {};
    case SectionKind::kKeys:
      return get_keys(in, out);
    case SectionKind::kMade:
      return get_made(in, &out->made);
    case SectionKind::kAllMade:
      return get_bytes(in, &out->bytes);
    case SectionKind::kPushed:
      return get_pushed(in, &out->pushed);
  }
  return data_loss("a section of kind {}", static_cast<int>(out->kind));
}

Status get_head(ByteReader* in, EntryHead* out) {
  SR_ASSIGN_OR_RETURN(const std::string_view magic, in->take(kMagic.size()));
  uint16_t format = 0;
  SR_RETURN_IF_ERROR(in->get(&format));
  if (magic != kMagic) return data_loss("it is no entry of a change log");
  if (format != kFormat) {
    return data_loss("it has format {}; this release reads {}", format, kFormat);
  }
  uint8_t zero = 0;
  uint32_t lane = 0;
  SR_RETURN_IF_ERROR(in->get(&out->kind));
  SR_RETURN_IF_ERROR(in->get(&zero));
  SR_RETURN_IF_ERROR(in->get(&lane));
  SR_RETURN_IF_ERROR(in->get(&out->to.incarnation));
  SR_RETURN_IF_ERROR(in->get(&out->from));
  SR_RETURN_IF_ERROR(in->get(&out->to.cut));
  if (out->kind > EntryKind::kLastPiece || zero != 0) return data_loss("it is of another kind");
  if (lane > static_cast<uint32_t>(std::numeric_limits<int>::max())) {
    return data_loss("lane {}", lane);
  }
  out->lane = static_cast<int>(lane);
  if (out->kind == EntryKind::kChanges && out->from >= out->to.cut) {
    return data_loss("changes from cut {} to {}", out->from, out->to.cut);
  }
  return {};
}

}  // namespace

Result<Entry> decode_entry(std::string_view bytes) {
  uint64_t checksum = 0;
  if (bytes.size() < sizeof(checksum)) return data_loss("{} bytes are no entry", bytes.size());
  const std::string_view all = bytes.substr(0, bytes.size() - sizeof(checksum));
  std::memcpy(&checksum, bytes.data() + all.size(), sizeof(checksum));
  if (base::hash64(all) != checksum) return data_loss("an entry's checksum is that of others");
  ByteReader in(all);
  Entry out;
  SR_RETURN_IF_ERROR(get_head(&in, &out.head));
  size_t last = 0;  // The section of rows before, and 1.
  while (true) {
    uint8_t kind = kEnd;
    SR_RETURN_IF_ERROR(in.get(&kind));
    if (kind == kEnd) break;
    Section& section = out.sections.emplace_back();
    section.kind = static_cast<SectionKind>(kind);
    const Status got =
        get_section(&in, last == 0 ? nullptr : &out.sections[last - 1].rows, &section);
    if (!got.ok()) return base::with_context(got, fmt::format("'{}'", section.name));
    if (section.kind == SectionKind::kRows) last = out.sections.size();
  }
  if (in.remaining() > 0) return data_loss("{} bytes after an entry", in.remaining());
  return out;
}

Result<Tensor> value_of(const Section& section) {
  return tensor_from(section.dtype, section.shape, section.bytes);
}

void EntryWriter::begin(SectionKind kind, std::string_view name, uint64_t home) {
  out_.put(kind);
  out_.put_string(name);
  out_.put(home);
}

void EntryWriter::put_type(DType dtype, const Shape& shape) {
  out_.put(dtype);
  out_.put(static_cast<uint16_t>(shape.rank()));
  for (const int64_t extent : shape.dims()) out_.put(extent);
}

void EntryWriter::put_elements(const Tensor& value) {
  if (value.dtype() == DType::kString) {
    const std::string bytes = tensor::strings_to_bytes(value);
    out_.put(uint64_t{bytes.size()});
    return out_.put_bytes(bytes);
  }
  out_.put(uint64_t{value.nbytes()});
  out_.put_bytes({reinterpret_cast<const char*>(value.raw()), value.nbytes()});
}

void EntryWriter::put_value(std::string_view name, uint64_t home, const Tensor& value) {
  begin(SectionKind::kValue, name, home);
  put_type(value.dtype(), value.shape());
  put_elements(value);
}

/// Everything before the bytes of the rows; how many each has.
size_t EntryWriter::begin_rows(std::string_view name, uint64_t home, DType dtype,
                               const Shape& shape, std::span<const int64_t> rows) {
  begin(SectionKind::kRows, name, home);
  put_type(dtype, shape);
  const bool are_last = has_rows_ && std::ranges::equal(last_rows_, rows);
  out_.put(static_cast<uint8_t>(are_last ? 1 : 0));
  if (!are_last) {
    ByteWriter gaps;
    int64_t next = 0;
    for (const int64_t row : rows) {
      SR_CHECK(row >= next, "rows are not in order");
      put_gap(&gaps, static_cast<uint64_t>(row - next));
      next = row + 1;
    }
    out_.put(uint64_t{rows.size()});
    out_.put(uint64_t{gaps.bytes().size()});
    out_.put_bytes(gaps.bytes());
    last_rows_.assign(rows.begin(), rows.end());
    has_rows_ = true;
  }
  size_t row_bytes = tensor::size_of(dtype);
  for (const int64_t extent : shape.dims().subspan(1)) row_bytes *= static_cast<size_t>(extent);
  out_.put(uint64_t{rows.size() * row_bytes});
  return row_bytes;
}

void EntryWriter::put_keys(std::string_view name, uint64_t home, const Tensor& keys,
                           const Tensor& values, const Tensor& removed) {
  begin(SectionKind::kKeys, name, home);
  out_.put(keys.dtype());
  put_type(values.dtype(), Shape(values.shape().dims().subspan(1)));
  out_.put(static_cast<uint64_t>(keys.num_elements()));
  put_elements(keys);
  put_elements(values);
  out_.put(static_cast<uint64_t>(removed.num_elements()));
  put_elements(removed);
}

void EntryWriter::put_made(std::string_view name, uint64_t home,
                           std::span<const NotedChange> made) {
  begin(SectionKind::kMade, name, home);
  out_.put(uint64_t{made.size()});
  for (const NotedChange& one : made) {
    out_.put(one.closure.client);
    out_.put(one.closure.closure);
    out_.put(one.change);
  }
}

void EntryWriter::put_all_made(std::string_view name, uint64_t home, std::string_view encoded) {
  begin(SectionKind::kAllMade, name, home);
  out_.put(uint64_t{encoded.size()});
  out_.put_bytes(encoded);
}

void EntryWriter::put_pushed(const PushedSoFar& pushed) {
  begin(SectionKind::kPushed, "", 0);
  out_.put(pushed.life);
  out_.put(static_cast<uint32_t>(pushed.lane));
  out_.put(pushed.number);
  out_.put(pushed.pushes);
  out_.put(pushed.rows);
}

void EntryWriter::put(const Section& section) {
  switch (section.kind) {
    case SectionKind::kValue: {
      begin(section.kind, section.name, section.home);
      put_type(section.dtype, section.shape);
      out_.put(uint64_t{section.bytes.size()});
      return out_.put_bytes(section.bytes);
    }
    case SectionKind::kRows: {
      const size_t row = section.rows.empty() ? 0 : section.bytes.size() / section.rows.size();
      return put_rows(section.name, section.home, section.dtype, section.shape, section.rows,
                      [&](size_t i) { return section.bytes.data() + i * row; });
    }
    case SectionKind::kGone:
      return put_gone(section.name, section.home);
    case SectionKind::kKeys:
      return put_keys(section.name, section.home, section.keys, section.values, section.removed);
    case SectionKind::kMade:
      return put_made(section.name, section.home, section.made);
    case SectionKind::kAllMade:
      return put_all_made(section.name, section.home, section.bytes);
    case SectionKind::kPushed:
      return put_pushed(section.pushed);
  }
}

std::string EntryWriter::finish() && {
  out_.put(kEnd);
  ByteWriter all;
  all.put_bytes(kMagic);
  all.put(kFormat);
  all.put(head_.kind);
  all.put(uint8_t{0});
  all.put(static_cast<uint32_t>(head_.lane));
  all.put(head_.to.incarnation);
  all.put(head_.from);
  all.put(head_.to.cut);
  all.put_bytes(out_.bytes());
  all.put(base::hash64(all.bytes()));
  return all.take();
}

}  // namespace sidereal::resources
