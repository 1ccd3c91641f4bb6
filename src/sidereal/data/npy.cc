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

#include "sidereal/data/byte_source.h"
#include "sidereal/parse/text.h"

namespace sidereal::data {
namespace {

using base::invalid_argument;
using parse::shown;
using tensor::DType;
using tensor::Shape;
using tensor::Tensor;

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

Result<Element> parse_element(std::string_view name) {
  if (name.empty()) {
    return invalid_argument("it is an array of records; save one plain array per file");
  }
  if (name == "<f4") return Element{.dtype = DType::kFloat32};
  if (name == "<f8") return Element{.dtype = DType::kFloat64};
  if (name == "<i4") return Element{.dtype = DType::kInt32};
  if (name == "<i8") return Element{.dtype = DType::kInt64};
  if (name == "|u1" || name == "u1") return Element{.dtype = DType::kUInt8};
  if (name == "|b1") return Element{.dtype = DType::kBool};
  SR_ASSIGN_OR_RETURN(const parse::NpyTextType text, parse::parse_npy_text_type(name));
  if (text.text != Text::kNone) {
    return Element{.dtype = DType::kUInt8, .text = text.text, .room = text.room};
  }
  return invalid_argument(
      "its element type is {}; convert it with .astype to float32, float64, int32, int64, uint8, "
      "bool (little-endian), str or bytes",
      shown(name));
}

Result<Header> parse_header(std::string_view bytes) {
  SR_ASSIGN_OR_RETURN(const parse::NpyHeader said, parse::parse_npy_header(bytes));
  Header header;
  header.data_offset = said.data_offset;
  SR_ASSIGN_OR_RETURN(header.element, parse_element(said.descr));
  header.shape = Shape(said.shape);
  if (said.fortran_order && header.shape.rank() > 1) {
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

}  // namespace

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
