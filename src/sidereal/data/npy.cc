#include "sidereal/data/npy.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <utility>

#include "sidereal/base/bytes.h"
#include "sidereal/data/byte_source.h"
#include "sidereal/parse/text.h"

namespace sidereal::data {
namespace {

using base::invalid_argument;
using parse::parse_integer;
using parse::shown;
using parse::trim_blanks;
using tensor::DType;
using tensor::Shape;
using tensor::Tensor;

constexpr int kRankMax = 8;

/// Bytes of a code point of kUtf32.
constexpr size_t kCodePoint = sizeof(uint32_t);

/// What an element is.
struct Element {
  DType dtype = DType::kInvalid;
  Text text = Text::kNone;
  int64_t room = 0;  // Bytes of a string.
};

struct Header {
  Element element;
  Shape shape;
  size_t data_offset = 0;
};

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

// "|S12" and "<U12".
Result<Element> parse_text(std::string_view name) {
  constexpr int64_t kLengthMax = int64_t{1} << 24;
  const Text text = name[1] == 'S' ? Text::kBytes : Text::kUtf32;
  int64_t length = 0;
  if (!parse_integer(name.substr(2), &length) || length < 1 || length > kLengthMax) {
    return invalid_argument("its strings are {}; they may have from 1 to {} characters",
                            shown(name), kLengthMax);
  }
  const int64_t bytes = text == Text::kBytes ? 1 : static_cast<int64_t>(kCodePoint);
  return Element{.dtype = DType::kUInt8, .text = text, .room = length * bytes};
}

Result<Element> parse_element(std::string_view text) {
  if (text.empty() || (text[0] != '\'' && text[0] != '"')) {
    return invalid_argument("it is an array of records; save one plain array per file");
  }
  const std::string_view name = text.substr(1, text.substr(1).find(text[0]));
  if (name == "<f4") return Element{.dtype = DType::kFloat32};
  if (name == "<f8") return Element{.dtype = DType::kFloat64};
  if (name == "<i4") return Element{.dtype = DType::kInt32};
  if (name == "<i8") return Element{.dtype = DType::kInt64};
  if (name == "|u1" || name == "u1") return Element{.dtype = DType::kUInt8};
  if (name == "|b1") return Element{.dtype = DType::kBool};
  if (name.starts_with("|S") || name.starts_with("<U")) return parse_text(name);
  return invalid_argument(
      "its element type is {}; convert it with .astype to float32, float64, int32, int64, uint8, "
      "bool (little-endian), str or bytes",
      shown(name));
}

Result<Shape> parse_shape(std::string_view text) {
  const size_t close = text.find(')');
  if (text.empty() || text.front() != '(' || close == std::string_view::npos) {
    return invalid_argument("its header has no shape");
  }
  text = text.substr(1, close - 1);
  Shape shape;
  while (!trim_blanks(text).empty()) {
    const size_t comma = text.find(',');
    int64_t extent = 0;
    constexpr int64_t kExtentMax = int64_t{1} << 48;
    if (!parse_integer(trim_blanks(text.substr(0, comma)), &extent) || extent < 0 ||
        extent > kExtentMax || shape.rank() == kRankMax) {
      return invalid_argument("its header has a shape that cannot be: ({})", shown(text));
    }
    shape.append(extent);
    text = comma == std::string_view::npos ? std::string_view() : text.substr(comma + 1);
  }
  return shape;
}

Result<Header> parse_header(std::string_view bytes) {
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

  Header header;
  header.data_offset = bytes.size() - reader.remaining();
  SR_ASSIGN_OR_RETURN(const std::string_view descr, value_of(dictionary, "descr"));
  SR_ASSIGN_OR_RETURN(header.element, parse_element(descr));
  SR_ASSIGN_OR_RETURN(const std::string_view order, value_of(dictionary, "fortran_order"));
  SR_ASSIGN_OR_RETURN(const std::string_view shape, value_of(dictionary, "shape"));
  SR_ASSIGN_OR_RETURN(header.shape, parse_shape(shape));
  if (!order.starts_with("False") && header.shape.rank() > 1) {
    return invalid_argument("it is in Fortran order; save numpy.ascontiguousarray(x)");
  }
  if (header.shape.rank() == 0) {
    return invalid_argument("it is a single number; its first dimension must be the rows");
  }
  if (header.element.text != Text::kNone) header.shape.append(header.element.room);
  return header;
}

// The tensor in the mapped file. Extents are checked one by one so that no product overflows.
Result<NpyArray> array_in(const tensor::Buffer::Ptr& buffer) {
  const auto* text = reinterpret_cast<const char*>(buffer->data());
  SR_ASSIGN_OR_RETURN(const Header header, parse_header({text, buffer->bytes()}));
  const DType dtype = header.element.dtype;
  size_t room = (buffer->bytes() - header.data_offset) / tensor::size_of(dtype);
  const auto extents = header.shape.dims();
  const bool none = std::find(extents.begin(), extents.end(), 0) != extents.end();
  for (const int64_t extent : extents) {
    if (!none) room /= static_cast<size_t>(extent);
  }
  if (!none && room == 0) {
    return invalid_argument("it is cut off: {} bytes of data do not hold {}{}",
                            buffer->bytes() - header.data_offset, tensor::name_of(dtype),
                            header.shape.to_string());
  }
  NpyArray out;
  out.text = header.element.text;
  if (none) {
    out.data = Tensor::empty(dtype, header.shape);
    return out;
  }
  out.data = Tensor(dtype, header.shape, buffer, header.data_offset);
  if (header.data_offset % tensor::size_of(dtype) != 0) out.data = out.data.clone();
  return out;
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

Status append_text(Text text, std::span<const std::byte> room, std::string* out) {
  const size_t size = text == Text::kUtf32 ? kCodePoint : 1;
  size_t end = room.size();
  while (end > 0 && room[end - 1] == std::byte{0}) --end;
  end = (end + size - 1) / size * size;
  if (text != Text::kUtf32) {
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

Result<NpyArray> map_npy(const std::string& path) {
  SR_ASSIGN_OR_RETURN(const int64_t size, file_bytes(path));
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return base::unavailable("{}: cannot be opened: {}", path, std::strerror(errno));
  const auto bytes = static_cast<size_t>(size);
  void* data = bytes == 0 ? MAP_FAILED : mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, fd, 0);
  const int error = errno;
  close(fd);
  if (bytes == 0) return invalid_argument("{}: is empty; write it with numpy.save", path);
  if (data == MAP_FAILED) {
    return base::unavailable("{}: cannot be mapped: {}", path, std::strerror(error));
  }
  auto buffer = tensor::Buffer::wrap(data, bytes, [data, bytes] { munmap(data, bytes); });
  Result<NpyArray> array = array_in(buffer);
  if (!array.ok()) return base::with_context(array.status(), path);
  return array;
}

}  // namespace sidereal::data
