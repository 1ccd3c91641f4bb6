#include "sidereal/data/columns.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <system_error>
#include <utility>

#include "sidereal/base/bytes.h"

namespace sidereal::data {
namespace {

using base::data_loss;

constexpr uint32_t kColumnsVersion = 1;
constexpr uint32_t kColumnsMax = 1 << 20;
constexpr uint32_t kNameBytesMax = 1 << 20;
constexpr char kListSeparator = '|';
constexpr size_t kOffsetBytes = sizeof(uint32_t);

template <class T>
void append_integer(T value, std::string* out) {
  std::array<char, 24> digits;
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
  out->append(digits.data(), end);
}

/// The shortest text that is read as the number again, as Arrow writes it: with an exponent where
/// it would be long.
template <class T>
void append_real(T value, std::string* out) {
  constexpr int kExponentMin = -6;
  constexpr int kExponentMax = 9;
  if (std::signbit(value)) out->push_back('-');
  if (std::isinf(value)) {
    out->append("inf");
    return;
  }
  std::array<char, 48> text;
  const char* const end = std::to_chars(text.data(), text.data() + text.size(), std::abs(value),
                                        std::chars_format::scientific)
                              .ptr;
  const auto mark = static_cast<size_t>(
      static_cast<const char*>(std::memchr(text.data(), 'e', end - text.data())) - text.data());
  std::array<char, 24> digits;
  size_t count = 0;
  for (size_t i = 0; i < mark; ++i) {
    if (text[i] != '.') digits[count++] = text[i];
  }
  int exponent = 0;
  const char* const sign = text.data() + mark + 1;
  std::from_chars(sign + 1, end, exponent);
  if (*sign == '-') exponent = -exponent;
  if (exponent < kExponentMin || exponent > kExponentMax) {
    out->push_back(digits[0]);
    if (count > 1) out->push_back('.');
    out->append(digits.data() + 1, count - 1);
    out->append(exponent < 0 ? "e" : "e+");
    append_integer(exponent, out);
    return;
  }
  if (exponent < 0) {
    out->append("0.");
    out->append(static_cast<size_t>(-exponent - 1), '0');
    out->append(digits.data(), count);
    return;
  }
  const auto whole = static_cast<size_t>(exponent) + 1;
  out->append(digits.data(), std::min(count, whole));
  if (count < whole) out->append(whole - count, '0');
  if (count <= whole) return;
  out->push_back('.');
  out->append(digits.data() + whole, count - whole);
}

/// What the text of a float is read as: the float itself, where it is not one of those that not
/// all libraries read.
bool as_read(float value, float* out) {
  *out = value;
  const float size = std::abs(value);
  return size <= std::numeric_limits<float>::max() &&
         (size >= std::numeric_limits<float>::min() || value == 0);
}

/// The same of a double. Its text and it lie on the same side of all that is half way between two
/// floats, but where the double itself does.
bool as_read(double value, float* out) {
  constexpr uint64_t kBehindFloat = (uint64_t{1} << 29) - 1;
  constexpr uint64_t kHalfWay = uint64_t{1} << 28;
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(bits));
  if ((bits & kBehindFloat) == kHalfWay) return false;
  const auto near = static_cast<float>(value);
  return as_read(near, out) && (near != 0 || value == 0);
}

size_t bytes_of(CellKind kind) {
  switch (kind) {
    case CellKind::kInt8:
    case CellKind::kUint8:
      return 1;
    case CellKind::kInt16:
    case CellKind::kUint16:
      return 2;
    case CellKind::kInt32:
    case CellKind::kUint32:
    case CellKind::kFloat32:
      return 4;
    case CellKind::kInt64:
    case CellKind::kUint64:
    case CellKind::kFloat64:
      return 8;
    default:
      return 0;
  }
}

/// Offsets, one more than what they part: from 0 on, none below the one before. The last one, which
/// is how much there is to part, into `total`.
Result<const char*> take_offsets(base::ByteReader* in, size_t parts, uint32_t* total) {
  SR_ASSIGN_OR_RETURN(const std::string_view taken, in->take((parts + 1) * kOffsetBytes));
  uint32_t last = 0;
  std::memcpy(&last, taken.data(), kOffsetBytes);
  bool is_wrong = last != 0;
  for (size_t i = 1; i <= parts; ++i) {
    uint32_t next = 0;
    std::memcpy(&next, taken.data() + i * kOffsetBytes, kOffsetBytes);
    is_wrong |= next < last;
    last = next;
  }
  if (is_wrong) return data_loss("offsets of a column do not ascend from 0 on");
  *total = last;
  return taken.data();
}

}  // namespace

bool Cells::is_missing(int64_t at) const {
  const auto bit = static_cast<size_t>(at);
  if (validity_ != nullptr && (static_cast<uint8_t>(validity_[bit / 8]) >> (bit % 8) & 1) == 0) {
    return true;
  }
  if (kind_ == CellKind::kFloat32) return std::isnan(read<float>(values_, at));
  if (kind_ == CellKind::kFloat64) return std::isnan(read<double>(values_, at));
  return kind_ == CellKind::kNone;
}

bool Cells::number(int64_t at, float* out) const {
  if (is_missing(at)) return false;
  switch (kind_) {
    case CellKind::kFloat32:
      return as_read(read<float>(values_, at), out);
    case CellKind::kFloat64:
      return as_read(read<double>(values_, at), out);
    case CellKind::kUint64:
      *out = static_cast<float>(read<uint64_t>(values_, at));
      return true;
    default:
      int64_t whole = 0;
      const bool is_integer = integer(at, &whole);
      *out = static_cast<float>(whole);
      return is_integer;
  }
}

bool Cells::integer(int64_t at, int64_t* out) const {
  if (is_missing(at)) return false;
  switch (kind_) {
    case CellKind::kInt8:
      *out = read<int8_t>(values_, at);  // NOLINT(bugprone-signed-char-misuse): it is a number.
      return true;
    case CellKind::kInt16:
      *out = read<int16_t>(values_, at);
      return true;
    case CellKind::kInt32:
      *out = read<int32_t>(values_, at);
      return true;
    case CellKind::kInt64:
      *out = read<int64_t>(values_, at);
      return true;
    case CellKind::kUint8:
      *out = read<uint8_t>(values_, at);
      return true;
    case CellKind::kUint16:
      *out = read<uint16_t>(values_, at);
      return true;
    case CellKind::kUint32:
      *out = read<uint32_t>(values_, at);
      return true;
    case CellKind::kUint64: {
      const auto value = read<uint64_t>(values_, at);
      *out = static_cast<int64_t>(value);
      return value <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
    }
    default:
      return false;
  }
}

std::string_view Cells::text(int64_t at, std::string* scratch) const {
  if (is_missing(at)) return {};
  if (kind_ == CellKind::kText) return nth_text(at);
  if (kind_ == CellKind::kDictionary) return nth_text(read<uint32_t>(places_, at));
  scratch->clear();
  append_text(at, scratch);
  return *scratch;
}

void Cells::append_text(int64_t at, std::string* out) const {
  if (is_missing(at)) return;
  int64_t whole = 0;
  switch (kind_) {
    case CellKind::kText:
      out->append(nth_text(at));
      return;
    case CellKind::kDictionary:
      out->append(nth_text(read<uint32_t>(places_, at)));
      return;
    case CellKind::kFloat32:
      return append_real(read<float>(values_, at), out);
    case CellKind::kFloat64:
      return append_real(read<double>(values_, at), out);
    case CellKind::kUint64:
      return append_integer(read<uint64_t>(values_, at), out);
    case CellKind::kList: {
      const auto begin = read<uint32_t>(offsets_, at);
      const auto end = read<uint32_t>(offsets_, at + 1);
      for (auto i = begin; i < end; ++i) {
        if (i > begin) out->push_back(kListSeparator);
        items_.front().append_text(i, out);
      }
      return;
    }
    default:
      if (integer(at, &whole)) append_integer(whole, out);
  }
}

/// Reads cells of a frame.
class CellReader {
 public:
  explicit CellReader(base::ByteReader* in) : in_(in) {}

  Result<Cells> read(size_t count, bool is_item) {
    Cells cells;
    cells.size_ = static_cast<int64_t>(count);
    SR_RETURN_IF_ERROR(in_->get(&cells.kind_));
    if (cells.kind_ > CellKind::kList) {
      return data_loss("a column is of the kind {}, which there is not",
                       static_cast<int>(cells.kind_));
    }
    const bool has_cells = cells.kind_ != CellKind::kNone && cells.kind_ != CellKind::kList;
    if (is_item && !has_cells)
      return data_loss("the values of a list are neither numbers nor text");
    if (cells.kind_ == CellKind::kNone) return cells;
    uint8_t has_missing = 0;
    SR_RETURN_IF_ERROR(in_->get(&has_missing));
    if (has_missing != 0) {
      SR_ASSIGN_OR_RETURN(const std::string_view bits, in_->take(count / 8 + (count % 8 != 0)));
      cells.validity_ = bits.data();
    }
    if (const size_t bytes = bytes_of(cells.kind_); bytes > 0) {
      SR_ASSIGN_OR_RETURN(const std::string_view values, in_->take(count * bytes));
      cells.values_ = values.data();
      return cells;
    }
    if (cells.kind_ == CellKind::kDictionary) SR_RETURN_IF_ERROR(read_dictionary(count, &cells));
    if (cells.kind_ == CellKind::kText) SR_RETURN_IF_ERROR(read_texts(count, &cells));
    if (cells.kind_ != CellKind::kList) return cells;
    uint32_t items = 0;
    SR_ASSIGN_OR_RETURN(cells.offsets_, take_offsets(in_, count, &items));
    SR_ASSIGN_OR_RETURN(Cells values, read(items, /*is_item=*/true));
    cells.items_.push_back(std::move(values));
    return cells;
  }

 private:
  Status read_texts(size_t count, Cells* cells) {
    uint32_t bytes = 0;
    SR_ASSIGN_OR_RETURN(cells->offsets_, take_offsets(in_, count, &bytes));
    SR_ASSIGN_OR_RETURN(const std::string_view values, in_->take(bytes));
    cells->values_ = values.data();
    return {};
  }

  Status read_dictionary(size_t count, Cells* cells) {
    uint32_t texts = 0;
    SR_RETURN_IF_ERROR(in_->get(&texts));
    SR_RETURN_IF_ERROR(read_texts(texts, cells));
    SR_ASSIGN_OR_RETURN(const std::string_view places, in_->take(count * sizeof(uint32_t)));
    cells->places_ = places.data();
    bool is_wrong = false;
    for (size_t i = 0; i < count; ++i) {
      is_wrong |= Cells::read<uint32_t>(places.data(), static_cast<int64_t>(i)) >= texts;
    }
    if (is_wrong) return data_loss("a cell is a text that its dictionary of {} has not", texts);
    return {};
  }

  base::ByteReader* in_;
};

Result<ColumnFrame> read_columns(std::string_view bytes) {
  base::ByteReader in(bytes);
  uint32_t version = 0;
  uint32_t rows = 0;
  uint32_t columns = 0;
  SR_RETURN_IF_ERROR(in.get(&version));
  if (version != kColumnsVersion) {
    return data_loss("columns are of version {}, and {} is read", version, kColumnsVersion);
  }
  SR_RETURN_IF_ERROR(in.get(&rows));
  // A name's length and a kind.
  SR_RETURN_IF_ERROR(in.get_count(&columns, kColumnsMax, sizeof(uint32_t) + 1));
  ColumnFrame frame{.rows = rows, .columns = {}};
  frame.columns.reserve(columns);
  for (uint32_t i = 0; i < columns; ++i) {
    NamedCells& column = frame.columns.emplace_back();
    SR_RETURN_IF_ERROR(in.get_string(&column.name, kNameBytesMax));
    SR_ASSIGN_OR_RETURN(column.cells, CellReader(&in).read(rows, /*is_item=*/false));
  }
  if (in.remaining() > 0) return data_loss("{} bytes follow the last column", in.remaining());
  return frame;
}

}  // namespace sidereal::data
