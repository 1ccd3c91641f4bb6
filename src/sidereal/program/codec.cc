#include <array>
#include <limits>
#include <type_traits>
#include <utility>

#include "sidereal/base/bytes.h"
#include "sidereal/base/check.h"
#include "sidereal/base/hash.h"
#include "sidereal/ir/schema.h"
#include "sidereal/program/program.h"
#include "sidereal/program/validate.h"
#include "sidereal/tensor/strings.h"
#include "sidereal/tensor/tensor.h"

// The format is docs/formats/program.md.
namespace sidereal::program {
namespace {

using base::ByteReader;
using base::ByteWriter;
using ir::AttrValue;
using ir::DType;
using ir::Shape;
using ir::Tensor;

constexpr std::array<char, 4> kMagic = {'S', 'R', 'P', 'G'};
constexpr uint16_t kVersion = 6;
constexpr uint32_t kMaxAttrs = 64;
constexpr uint32_t kMaxList = 1U << 20;
/// Bytes of names.
constexpr uint32_t kMaxText = 1U << 16;
constexpr uint8_t kUnknownRank = 255;
/// Flags of a program.
constexpr uint16_t kParks = 1;
/// Flags of a call.
constexpr uint8_t kWaits = 1;
constexpr uint8_t kAsyncPush = 2;
constexpr uint8_t kAhead = 4;
constexpr uint8_t kRepeatable = 8;

void put_count(ByteWriter* w, size_t count, uint32_t max) {
  SR_CHECK(count <= max, "{} items in a program; the format holds {}", count, max);
  w->put(static_cast<uint32_t>(count));
}

void put_list(ByteWriter* w, const std::vector<int32_t>& values) {
  put_count(w, values.size(), kMaxList);
  for (const int32_t value : values) w->put(value);
}

void put_names(ByteWriter* w, const std::vector<std::string>& names) {
  put_count(w, names.size(), kMaxList);
  for (const std::string& name : names) w->put_string(name);
}

void put_value(ByteWriter* w, bool v) { w->put(static_cast<uint8_t>(v ? 1 : 0)); }
void put_value(ByteWriter* w, int64_t v) { w->put(v); }
void put_value(ByteWriter* w, double v) { w->put(v); }
void put_value(ByteWriter* w, const std::string& v) { w->put_string(v); }
void put_value(ByteWriter* w, DType v) { w->put(v); }

void put_value(ByteWriter* w, const Shape& v) {
  if (!v.has_rank()) return w->put(kUnknownRank);
  w->put(static_cast<uint8_t>(v.rank()));
  for (const int64_t extent : v.dims()) w->put(extent);
}

void put_value(ByteWriter* w, const Tensor& v) {
  w->put(v.dtype());
  put_value(w, v.shape());
  if (v.dtype() == DType::kString) {
    const auto strings = v.data<const std::string_view>();
    for (const std::string_view s : strings) w->put(static_cast<uint64_t>(s.size()));
    for (const std::string_view s : strings) w->put_bytes(s);
    return;
  }
  w->put_bytes({reinterpret_cast<const char*>(v.raw()), v.nbytes()});
}

template <class T>
void put_value(ByteWriter* w, const std::vector<T>& values) {
  put_count(w, values.size(), kMaxList);
  for (const T& value : values) put_value(w, value);
}

Status get_value(ByteReader* r, bool* out) {
  uint8_t byte = 0;
  SR_RETURN_IF_ERROR(r->get(&byte));
  if (byte > 1) return base::data_loss("a bool is {}", byte);
  *out = byte == 1;
  return {};
}
Status get_value(ByteReader* r, int64_t* out) { return r->get(out); }
Status get_value(ByteReader* r, double* out) { return r->get(out); }
/// As long as the bytes that there are: a dataset has its data in one.
Status get_value(ByteReader* r, std::string* out) {
  return r->get_string(out, std::numeric_limits<uint32_t>::max());
}

Status get_value(ByteReader* r, DType* out) {
  SR_RETURN_IF_ERROR(r->get(out));
  if (tensor::is_valid(*out)) return {};
  return base::data_loss("{} is not a dtype", static_cast<int>(*out));
}

Status get_value(ByteReader* r, Shape* out) {
  uint8_t rank = 0;
  SR_RETURN_IF_ERROR(r->get(&rank));
  *out = Shape();
  if (rank == kUnknownRank) {
    *out = Shape::unknown_rank();
    return {};
  }
  if (rank > ir::kMaxRank) return base::data_loss("a shape has rank {}", rank);
  for (uint8_t i = 0; i < rank; ++i) {
    int64_t extent = 0;
    SR_RETURN_IF_ERROR(r->get(&extent));
    out->append(extent);
  }
  return ir::check_shape(*out);
}

/// The strings of a tensor: u64 lengths, then the bytes.
Status get_strings(ByteReader* r, const Shape& shape, Tensor* out) {
  const auto count = static_cast<uint64_t>(shape.num_elements());
  if (count > r->remaining() / sizeof(uint64_t)) {
    return base::data_loss("a tensor of {} strings is longer than the bytes", count);
  }
  std::vector<uint64_t> lengths(count);
  for (uint64_t& length : lengths) SR_RETURN_IF_ERROR(r->get(&length));
  tensor::StringsBuilder strings;
  for (const uint64_t length : lengths) {
    SR_ASSIGN_OR_RETURN(const std::string_view bytes, r->take(length));
    strings.add(bytes);
  }
  *out = std::move(strings).finish(shape);
  return {};
}

Status get_value(ByteReader* r, Tensor* out) {
  DType dtype = DType::kInvalid;
  Shape shape;
  SR_RETURN_IF_ERROR(get_value(r, &dtype));
  SR_RETURN_IF_ERROR(get_value(r, &shape));
  if (!shape.is_fully_defined()) return base::data_loss("a tensor has an unknown shape");
  if (dtype == DType::kString) return get_strings(r, shape, out);
  const auto count = static_cast<uint64_t>(shape.num_elements());
  if (count > r->remaining() / tensor::size_of(dtype)) {
    return base::data_loss("a tensor of {} elements is longer than the bytes", count);
  }
  SR_ASSIGN_OR_RETURN(const std::string_view bytes, r->take(count * tensor::size_of(dtype)));
  if (dtype == DType::kBool &&
      bytes.find_first_not_of(std::string_view("\0\1", 2)) != std::string_view::npos) {
    return base::data_loss("a bool in a tensor is neither 0 nor 1");
  }
  *out = Tensor::empty(dtype, shape);
  if (!bytes.empty()) __builtin_memcpy(out->raw(), bytes.data(), bytes.size());
  return {};
}

template <class T>
Status get_value(ByteReader* r, std::vector<T>* out) {
  uint32_t count = 0;
  SR_RETURN_IF_ERROR(r->get_count(&count, kMaxList, std::is_same_v<T, std::string> ? 4 : 8));
  out->resize(count);
  for (T& value : *out) SR_RETURN_IF_ERROR(get_value(r, &value));
  return {};
}

/// Reads the alternative of the variant whose index is `type`.
template <size_t I = 0>
Status get_alternative(ByteReader* r, uint8_t type, AttrValue* out) {
  if constexpr (I < std::variant_size_v<AttrValue>) {
    if (type != I) return get_alternative<I + 1>(r, type, out);
    std::variant_alternative_t<I, AttrValue> value{};
    SR_RETURN_IF_ERROR(get_value(r, &value));
    *out = std::move(value);
    return {};
  } else {
    return base::data_loss("{} is not an attribute type", type);
  }
}

void put_attrs(ByteWriter* w, const ir::AttrMap& attrs) {
  put_count(w, attrs.size(), kMaxAttrs);
  for (const auto& [name, value] : attrs) {
    w->put_string(name);
    w->put(static_cast<uint8_t>(value.index()));
    std::visit([w](const auto& v) { put_value(w, v); }, value);
  }
}

Status get_attrs(ByteReader* r, ir::AttrMap* attrs) {
  uint32_t count = 0;
  SR_RETURN_IF_ERROR(r->get_count(&count, kMaxAttrs, 6));
  std::string last;
  for (uint32_t i = 0; i < count; ++i) {
    std::string name;
    uint8_t type = 0;
    SR_RETURN_IF_ERROR(r->get_string(&name, kMaxText));
    // One order only, so that equal programs have equal bytes.
    if (i > 0 && name <= last) return base::data_loss("attributes are not in order");
    SR_RETURN_IF_ERROR(r->get(&type));
    SR_RETURN_IF_ERROR(
        base::with_context(get_alternative(r, type, &(*attrs)[name]), "attribute '" + name + "'"));
    last = std::move(name);
  }
  return {};
}

Status get_list(ByteReader* r, std::vector<int32_t>* out) {
  uint32_t count = 0;
  SR_RETURN_IF_ERROR(r->get_count(&count, kMaxList, 4));
  out->resize(count);
  for (int32_t& value : *out) SR_RETURN_IF_ERROR(r->get(&value));
  return {};
}

void put_instruction(ByteWriter* w, const Instruction& instruction, bool parks) {
  w->put(instruction.kind);
  w->put(instruction.call);
  w->put_string(instruction.op);
  w->put_string(instruction.name);
  put_attrs(w, instruction.attrs);
  put_list(w, instruction.inputs);
  put_list(w, instruction.outputs);
  put_list(w, instruction.releases);
  if (instruction.kind == InstructionKind::kControl) put_list(w, instruction.bodies);
  if (parks) put_list(w, instruction.after);
}

Status get_instruction(ByteReader* r, Instruction* out, bool parks) {
  SR_RETURN_IF_ERROR(r->get(&out->kind));
  if (out->kind > InstructionKind::kControl) {
    return base::data_loss("{} is not an instruction kind", static_cast<int>(out->kind));
  }
  SR_RETURN_IF_ERROR(r->get(&out->call));
  SR_RETURN_IF_ERROR(r->get_string(&out->op, kMaxText));
  SR_RETURN_IF_ERROR(r->get_string(&out->name, kMaxText));
  SR_RETURN_IF_ERROR(get_attrs(r, &out->attrs));
  SR_RETURN_IF_ERROR(get_list(r, &out->inputs));
  SR_RETURN_IF_ERROR(get_list(r, &out->outputs));
  SR_RETURN_IF_ERROR(get_list(r, &out->releases));
  if (out->kind == InstructionKind::kControl) SR_RETURN_IF_ERROR(get_list(r, &out->bodies));
  return parks ? get_list(r, &out->after) : Status();
}

Status get_header(ByteReader* r, Program* program) {
  SR_ASSIGN_OR_RETURN(const std::string_view magic, r->take(kMagic.size()));
  if (magic != std::string_view(kMagic.data(), kMagic.size())) {
    return base::data_loss("the bytes do not start with 'SRPG'");
  }
  uint16_t version = 0;
  uint16_t flags = 0;
  SR_RETURN_IF_ERROR(r->get(&version));
  SR_RETURN_IF_ERROR(r->get(&flags));
  if (version != kVersion || flags > kParks) {
    return base::invalid_argument("the format is version {}, flags {}; this reads version {}",
                                  version, flags, kVersion);
  }
  program->parks = flags == kParks;
  return {};
}

Status get_slots(ByteReader* r, std::vector<SlotInfo>* slots) {
  uint32_t count = 0;
  SR_RETURN_IF_ERROR(r->get_count(&count, kMaxSlots, 6));
  slots->resize(count);
  for (SlotInfo& slot : *slots) {
    SR_RETURN_IF_ERROR(get_value(r, &slot.dtype));
    SR_RETURN_IF_ERROR(get_value(r, &slot.shape));
    SR_RETURN_IF_ERROR(r->get(&slot.buffer));
  }
  return {};
}

Status get_calls(ByteReader* r, std::vector<CallSpec>* calls) {
  uint32_t count = 0;
  SR_RETURN_IF_ERROR(r->get_count(&count, kMaxCalls, 21));
  calls->resize(count);
  for (CallSpec& call : *calls) {
    SR_RETURN_IF_ERROR(r->get(&call.program));
    SR_RETURN_IF_ERROR(get_list(r, &call.feeds));
    SR_RETURN_IF_ERROR(get_list(r, &call.fetches));
    SR_RETURN_IF_ERROR(r->get_string(&call.device, kMaxText));
    uint8_t flags = 0;
    SR_RETURN_IF_ERROR(r->get(&flags));
    if (flags > (kWaits | kAsyncPush | kAhead | kRepeatable)) {
      return base::data_loss("a call has flags {}", flags);
    }
    call.waits = (flags & kWaits) != 0;
    call.async_push = (flags & kAsyncPush) != 0;
    call.ahead = (flags & kAhead) != 0;
    call.repeatable = (flags & kRepeatable) != 0;
    if (call.ahead && !call.feeds.empty()) return base::data_loss("a prefetched call has feeds");
    if (call.device.empty()) return base::data_loss("a call names no device");
  }
  return {};
}

/// A program or a body.
Status get_part(ByteReader* r, Program* program) {
  SR_RETURN_IF_ERROR(r->get(&program->num_buffers));
  SR_RETURN_IF_ERROR(base::with_context(get_slots(r, &program->slots), "slots"));
  SR_RETURN_IF_ERROR(get_list(r, &program->feeds));
  SR_RETURN_IF_ERROR(get_value(r, &program->feed_names));
  SR_RETURN_IF_ERROR(get_list(r, &program->fetches));
  SR_RETURN_IF_ERROR(get_value(r, &program->fetch_names));
  SR_RETURN_IF_ERROR(base::with_context(get_calls(r, &program->calls), "calls"));
  uint32_t count = 0;
  SR_RETURN_IF_ERROR(r->get_count(&count, kMaxInstructions, 29));
  program->instructions.resize(count);
  for (uint32_t i = 0; i < count; ++i) {
    SR_RETURN_IF_ERROR(
        base::with_context(get_instruction(r, &program->instructions[i], program->parks),
                           fmt::format("instruction {}", i)));
  }
  return {};
}

Status get_program(ByteReader* r, Program* program) {
  SR_RETURN_IF_ERROR(get_header(r, program));
  SR_RETURN_IF_ERROR(get_part(r, program));
  uint32_t count = 0;
  SR_RETURN_IF_ERROR(r->get_count(&count, kMaxBodies, 32));
  for (uint32_t k = 0; k < count; ++k) {
    SR_RETURN_IF_ERROR(base::with_context(get_part(r, &program->bodies.emplace_back()),
                                          fmt::format("body {}", k)));
  }
  if (r->remaining() > 0) return base::data_loss("{} bytes follow the end", r->remaining());
  return validate(*program);
}

void put_part(ByteWriter* w, const Program& program) {
  w->put(program.num_buffers);
  put_count(w, program.slots.size(), kMaxSlots);
  for (const SlotInfo& slot : program.slots) {
    w->put(slot.dtype);
    put_value(w, slot.shape);
    w->put(slot.buffer);
  }
  put_list(w, program.feeds);
  put_names(w, program.feed_names);
  put_list(w, program.fetches);
  put_names(w, program.fetch_names);
  put_count(w, program.calls.size(), kMaxCalls);
  for (const CallSpec& call : program.calls) {
    w->put(call.program);
    put_list(w, call.feeds);
    put_list(w, call.fetches);
    w->put_string(call.device);
    w->put(static_cast<uint8_t>((call.waits ? kWaits : 0) | (call.async_push ? kAsyncPush : 0) |
                                (call.ahead ? kAhead : 0) | (call.repeatable ? kRepeatable : 0)));
  }
  put_count(w, program.instructions.size(), kMaxInstructions);
  for (const Instruction& instruction : program.instructions) {
    put_instruction(w, instruction, program.parks);
  }
}

}  // namespace

std::string encode(const Program& program) {
  ByteWriter w;
  w.put_bytes({kMagic.data(), kMagic.size()});
  w.put(kVersion);
  w.put(program.parks ? kParks : uint16_t{0});
  put_part(&w, program);
  put_count(&w, program.bodies.size(), kMaxBodies);
  for (const Program& body : program.bodies) put_part(&w, body);
  return w.take();
}

Result<Program> decode(std::string_view bytes) {
  ByteReader reader(bytes);
  Program program;
  SR_RETURN_IF_ERROR(base::with_context(get_program(&reader, &program), "a program"));
  return program;
}

uint64_t content_hash(std::string_view bytes) {
  const uint64_t hash = base::hash64(bytes);
  return hash == 0 ? 1 : hash;
}

}  // namespace sidereal::program
