#include "tests/fuzz/message_changes.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <array>
#include <cstdint>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

namespace sidereal::fuzz {

namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

struct Place {
  Message* message;
  const FieldDescriptor* field;
};

/// Every field of `message` and of the messages in it, set or not.
void collect(Message* message, std::vector<Place>* out) {
  const auto* const type = message->GetDescriptor();
  const Reflection& reflection = *message->GetReflection();
  for (int i = 0; i < type->field_count(); ++i) {
    const FieldDescriptor* const field = type->field(i);
    out->push_back({message, field});
    if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) continue;
    if (field->is_repeated()) {
      for (int k = 0; k < reflection.FieldSize(*message, field); ++k) {
        collect(reflection.MutableRepeatedMessage(message, field, k), out);
      }
    } else if (reflection.HasField(*message, field)) {
      collect(reflection.MutableMessage(message, field), out);
    }
  }
}

class Change {
 public:
  Change(std::minstd_rand* random, const ChangeBytes& change, size_t max)
      : random_(*random), change_(change), max_(max) {}

  void one(const Place& place) {
    const Reflection& reflection = *place.message->GetReflection();
    if (place.field->is_repeated()) return repeated(place, reflection);
    if (below(8) == 0) return reflection.ClearField(place.message, place.field);
    single(place, reflection);
  }

 private:
  uint32_t below(uint32_t n) { return static_cast<uint32_t>(random_()) % n; }

  /// A number near one that matters, or near `old`.
  uint64_t number(uint64_t old) {
    static constexpr std::array<uint64_t, 12> kSpecial = {0,
                                                          1,
                                                          2,
                                                          7,
                                                          16,
                                                          127,
                                                          255,
                                                          65'536,
                                                          0x7fffffff,
                                                          0xffffffff,
                                                          uint64_t{1} << 40,
                                                          std::numeric_limits<int64_t>::max()};
    switch (below(5)) {
      case 0:
        return old + 1;
      case 1:
        return old - 1;
      case 2:
        return old ^ (uint64_t{1} << below(64));
      case 3:
        return ~kSpecial.at(below(kSpecial.size())) + below(2);  // And negative ones.
      default:
        return kSpecial.at(below(kSpecial.size()));
    }
  }
  double real(double old) {
    static constexpr std::array<double, 6> kSpecial = {0,
                                                       -1,
                                                       0.5,
                                                       1e300,
                                                       std::numeric_limits<double>::infinity(),
                                                       std::numeric_limits<double>::quiet_NaN()};
    return below(3) == 0 ? -old : kSpecial.at(below(kSpecial.size()));
  }
  std::string text(const std::string& old) { return change_(old, max_); }

  void single(const Place& place, const Reflection& reflection) {
    Message* const m = place.message;
    const FieldDescriptor* const f = place.field;
    switch (f->cpp_type()) {
      case FieldDescriptor::CPPTYPE_INT32:
        return reflection.SetInt32(m, f, static_cast<int32_t>(number(reflection.GetInt32(*m, f))));
      case FieldDescriptor::CPPTYPE_INT64:
        return reflection.SetInt64(m, f, static_cast<int64_t>(number(reflection.GetInt64(*m, f))));
      case FieldDescriptor::CPPTYPE_UINT32:
        return reflection.SetUInt32(m, f,
                                    static_cast<uint32_t>(number(reflection.GetUInt32(*m, f))));
      case FieldDescriptor::CPPTYPE_UINT64:
        return reflection.SetUInt64(m, f, number(reflection.GetUInt64(*m, f)));
      case FieldDescriptor::CPPTYPE_DOUBLE:
        return reflection.SetDouble(m, f, real(reflection.GetDouble(*m, f)));
      case FieldDescriptor::CPPTYPE_FLOAT:
        return reflection.SetFloat(m, f, static_cast<float>(real(reflection.GetFloat(*m, f))));
      case FieldDescriptor::CPPTYPE_BOOL:
        return reflection.SetBool(m, f, !reflection.GetBool(*m, f));
      case FieldDescriptor::CPPTYPE_ENUM:
        return reflection.SetEnumValue(m, f, static_cast<int>(below(16)));
      case FieldDescriptor::CPPTYPE_STRING:
        return reflection.SetString(m, f, text(reflection.GetString(*m, f)));
      case FieldDescriptor::CPPTYPE_MESSAGE:
        reflection.MutableMessage(m, f);  // Those of its fields are places of their own.
    }
  }

  /// Elements come, go and change places; or one of them changes.
  void repeated(const Place& place, const Reflection& reflection) {
    Message* const m = place.message;
    const FieldDescriptor* const f = place.field;
    const int size = reflection.FieldSize(*m, f);
    const int at = size == 0 ? 0 : static_cast<int>(below(static_cast<uint32_t>(size)));
    const uint32_t what = below(8);
    if (what == 0 && size > 0) return reflection.RemoveLast(m, f);
    if (what == 1 && size > 1) return reflection.SwapElements(m, f, at, 0);
    if (what <= 3 || size == 0) return add(m, f, reflection);
    switch (f->cpp_type()) {
      case FieldDescriptor::CPPTYPE_INT32: {
        const int32_t old = reflection.GetRepeatedInt32(*m, f, at);
        return reflection.SetRepeatedInt32(m, f, at, static_cast<int32_t>(number(old)));
      }
      case FieldDescriptor::CPPTYPE_INT64: {
        const int64_t old = reflection.GetRepeatedInt64(*m, f, at);
        return reflection.SetRepeatedInt64(m, f, at, static_cast<int64_t>(number(old)));
      }
      case FieldDescriptor::CPPTYPE_STRING:
        return reflection.SetRepeatedString(m, f, at,
                                            text(reflection.GetRepeatedString(*m, f, at)));
      default:
        return;
    }
  }

  void add(Message* m, const FieldDescriptor* f, const Reflection& reflection) {
    const int size = reflection.FieldSize(*m, f);
    switch (f->cpp_type()) {
      case FieldDescriptor::CPPTYPE_INT32:
        return reflection.AddInt32(m, f, static_cast<int32_t>(number(0)));
      case FieldDescriptor::CPPTYPE_INT64:
        return reflection.AddInt64(m, f, static_cast<int64_t>(number(0)));
      case FieldDescriptor::CPPTYPE_STRING:
        return reflection.AddString(
            m, f, size > 0 ? reflection.GetRepeatedString(*m, f, 0) : text(std::string()));
      case FieldDescriptor::CPPTYPE_MESSAGE: {
        Message* const made = reflection.AddMessage(m, f);
        if (size > 0) made->CopyFrom(reflection.GetRepeatedMessage(*m, f, 0));
        return;
      }
      default:
        return;
    }
  }

  std::minstd_rand& random_;
  const ChangeBytes& change_;
  const size_t max_;
};

}  // namespace

std::string change_message(const std::string& bytes, const google::protobuf::Descriptor& type,
                           size_t max, std::minstd_rand* random, const ChangeBytes& change) {
  const std::unique_ptr<Message> message(
      google::protobuf::MessageFactory::generated_factory()->GetPrototype(&type)->New());
  std::vector<Place> places;
  if (message->ParseFromString(bytes)) collect(message.get(), &places);
  if (places.empty()) return change(bytes, max);
  Change(random, change, max).one(places[(*random)() % places.size()]);
  std::string out = message->SerializePartialAsString();
  return out.size() <= max ? out : change(bytes, max);
}

}  // namespace sidereal::fuzz
