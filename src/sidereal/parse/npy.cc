#include "sidereal/parse/npy.h"

#include <cstring>

#include "sidereal/base/bytes.h"
#include "sidereal/parse/text.h"

namespace sidereal::parse {
namespace {

using base::invalid_argument;

constexpr size_t kRankMax = 8;
/// Bytes of a code point of kUtf32.
constexpr size_t kCodePoint = sizeof(uint32_t);

// The text after `'key':` in the header's dictionary, without leading blanks.
Result<std::string_view> value_of(std::string_view dictionary, std::string_view key) {
  for (const char quote : {'\'', '"'}) {
    const std::string quoted = quote + std::string(key) + quote;
    const size_t at = dictionary.find(quoted);
    if (at == std::string_view::npos) continue;
    std::string_view rest = trim_blanks(dictionary.substr(at + quoted.size()));
    if (rest.empty() || rest.front() != ':') break;
    return trim_blanks(rest.substr(1));
  }
  return invalid_argument("its header has no '{}'", key);
}

Result<std::vector<int64_t>> parse_shape(std::string_view text) {
  const size_t close = text.find(')');
  if (text.empty() || text.front() != '(' || close == std::string_view::npos) {
    return invalid_argument("its header has no shape");
  }
  text = text.substr(1, close - 1);
  std::vector<int64_t> shape;
  while (!trim_blanks(text).empty()) {
    const size_t comma = text.find(',');
    int64_t extent = 0;
    constexpr int64_t kExtentMax = int64_t{1} << 48;
    if (!parse_integer(trim_blanks(text.substr(0, comma)), &extent) || extent < 0 ||
        extent > kExtentMax || shape.size() == kRankMax) {
      return invalid_argument("its header has a shape that cannot be: ({})", shown(text));
    }
    shape.push_back(extent);
    text = comma == std::string_view::npos ? std::string_view() : text.substr(comma + 1);
  }
  return shape;
}

void append_utf8(uint32_t code, std::string* out) {
  if (code < 0x80) {
    out->push_back(static_cast<char>(code));
    return;
  }
  const int tail = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
  constexpr uint8_t kFirst[] = {0, 0xC0, 0xE0, 0xF0};
  out->push_back(static_cast<char>(kFirst[tail] | code >> (6 * tail)));
  for (int i = tail; i-- > 0;) out->push_back(static_cast<char>(0x80 | (code >> (6 * i) & 0x3F)));
}

}  // namespace

Result<NpyHeader> parse_npy_header(std::string_view bytes) {
  constexpr std::string_view kMagic = "\x93NUMPY";
  base::ByteReader reader(bytes);
  const auto magic = reader.take(kMagic.size());
  uint8_t major = 0;
  uint8_t minor = 0;
  if (!magic.ok() || *magic != kMagic || !reader.get(&major).ok() || !reader.get(&minor).ok()) {
    return invalid_argument("it is not a .npy file; write it with numpy.save");
  }
  uint32_t length = 0;
  if (major == 1) {
    uint16_t narrow = 0;
    SR_RETURN_IF_ERROR(reader.get(&narrow));
    length = narrow;
  } else if (major == 2) {
    SR_RETURN_IF_ERROR(reader.get(&length));
  } else {
    return invalid_argument("its .npy version is {}; versions 1 and 2 can be read", major);
  }
  SR_ASSIGN_OR_RETURN(const std::string_view dictionary, reader.take(length));

  NpyHeader header;
  header.data_offset = bytes.size() - reader.remaining();
  SR_ASSIGN_OR_RETURN(const std::string_view descr, value_of(dictionary, "descr"));
  if (!descr.empty() && (descr[0] == '\'' || descr[0] == '"')) {
    header.descr = descr.substr(1, descr.substr(1).find(descr[0]));
  }
  SR_ASSIGN_OR_RETURN(const std::string_view order, value_of(dictionary, "fortran_order"));
  header.fortran_order = !order.starts_with("False");
  SR_ASSIGN_OR_RETURN(const std::string_view shape, value_of(dictionary, "shape"));
  SR_ASSIGN_OR_RETURN(header.shape, parse_shape(shape));
  return header;
}

Result<NpyTextType> parse_npy_text_type(std::string_view descr) {
  constexpr int64_t kLengthMax = int64_t{1} << 24;
  if (!descr.starts_with("|S") && !descr.starts_with("<U")) return NpyTextType();
  const NpyText text = descr[1] == 'S' ? NpyText::kBytes : NpyText::kUtf32;
  int64_t length = 0;
  if (!parse_integer(descr.substr(2), &length) || length < 1 || length > kLengthMax) {
    return invalid_argument("its strings are {}; they may have from 1 to {} characters",
                            shown(descr), kLengthMax);
  }
  const int64_t bytes = text == NpyText::kBytes ? 1 : static_cast<int64_t>(kCodePoint);
  return NpyTextType{.text = text, .room = length * bytes};
}

Status append_text(NpyText text, std::span<const std::byte> room, std::string* out) {
  const size_t size = text == NpyText::kUtf32 ? kCodePoint : 1;
  size_t end = room.size();
  while (end > 0 && room[end - 1] == std::byte{0}) --end;
  end = (end + size - 1) / size * size;
  if (text != NpyText::kUtf32) {
    out->append(reinterpret_cast<const char*>(room.data()), end);
    return {};
  }
  for (size_t at = 0; at < end; at += size) {
    uint32_t code = 0;
    std::memcpy(&code, room.data() + at, size);
    if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) {
      return invalid_argument("{:#x} is no character", code);
    }
    append_utf8(code, out);
  }
  return {};
}

}  // namespace sidereal::parse
