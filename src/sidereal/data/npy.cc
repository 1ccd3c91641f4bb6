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

struct Header {
  DType dtype = DType::kInvalid;
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

Result<DType> parse_dtype(std::string_view text) {
  if (text.empty() || (text[0] != '\'' && text[0] != '"')) {
    return invalid_argument("it is an array of records; save one plain array per file");
  }
  const std::string_view name = text.substr(1, text.substr(1).find(text[0]));
  if (name == "<f4") return DType::kFloat32;
  if (name == "<f8") return DType::kFloat64;
  if (name == "<i4") return DType::kInt32;
  if (name == "<i8") return DType::kInt64;
  if (name == "|u1" || name == "u1") return DType::kUInt8;
  if (name == "|b1") return DType::kBool;
  return invalid_argument(
      "its element type is {}; convert it with .astype to float32, float64, int32, int64, uint8 "
      "or bool (little-endian)",
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
  SR_ASSIGN_OR_RETURN(header.dtype, parse_dtype(descr));
  SR_ASSIGN_OR_RETURN(const std::string_view order, value_of(dictionary, "fortran_order"));
  SR_ASSIGN_OR_RETURN(const std::string_view shape, value_of(dictionary, "shape"));
  SR_ASSIGN_OR_RETURN(header.shape, parse_shape(shape));
  if (!order.starts_with("False") && header.shape.rank() > 1) {
    return invalid_argument("it is in Fortran order; save numpy.ascontiguousarray(x)");
  }
  if (header.shape.rank() == 0) {
    return invalid_argument("it is a single number; its first dimension must be the rows");
  }
  return header;
}

// The tensor in the mapped file. Extents are checked one by one so that no product overflows.
Result<Tensor> tensor_in(const tensor::Buffer::Ptr& buffer) {
  const auto* text = reinterpret_cast<const char*>(buffer->data());
  SR_ASSIGN_OR_RETURN(const Header header, parse_header({text, buffer->bytes()}));
  size_t room = (buffer->bytes() - header.data_offset) / tensor::size_of(header.dtype);
  const auto extents = header.shape.dims();
  const bool none = std::find(extents.begin(), extents.end(), 0) != extents.end();
  for (const int64_t extent : extents) {
    if (!none) room /= static_cast<size_t>(extent);
  }
  if (!none && room == 0) {
    return invalid_argument("it is cut off: {} bytes of data do not hold {}{}",
                            buffer->bytes() - header.data_offset, tensor::name_of(header.dtype),
                            header.shape.to_string());
  }
  if (none) return Tensor::empty(header.dtype, header.shape);
  const Tensor mapped(header.dtype, header.shape, buffer, header.data_offset);
  const bool aligned = header.data_offset % tensor::size_of(header.dtype) == 0;
  return aligned ? mapped : mapped.clone();
}

}  // namespace

Result<Tensor> map_npy(const std::string& path) {
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
  Result<Tensor> tensor = tensor_in(buffer);
  if (!tensor.ok()) return base::with_context(tensor.status(), path);
  return tensor;
}

}  // namespace sidereal::data
