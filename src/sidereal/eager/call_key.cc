#include "sidereal/eager/call_key.h"

#include <bit>
#include <string_view>

#include "sidereal/base/hash.h"

namespace sidereal::eager {
namespace {

/// A running hash of a few words. Not for files: it may differ between releases.
class Mixer {
 public:
  void add(uint64_t word) { state_ = std::rotl((state_ ^ word) * 0x9E3779B97F4A7C15ULL, 29); }
  void add(std::string_view text) {
    add(text.size());
    uint64_t word = 0;
    while (text.size() >= sizeof word) {
      __builtin_memcpy(&word, text.data(), sizeof word);
      add(word);
      text.remove_prefix(sizeof word);
    }
    word = 0;
    __builtin_memcpy(&word, text.data(), text.size());
    add(word);
  }
  [[nodiscard]] uint64_t value() const { return state_ ^ (state_ >> 32); }

 private:
  uint64_t state_ = 0x243F6A8885A308D3ULL;
};

void add_shape(Mixer* mixer, const ir::Shape& shape) {
  mixer->add(shape.has_rank() ? static_cast<uint64_t>(shape.rank()) : ~uint64_t{0});
  for (const int64_t extent : shape.dims()) mixer->add(static_cast<uint64_t>(extent));
}

void add_attr(Mixer* mixer, const ir::AttrValue& value) {
  mixer->add(value.index());
  std::visit(
      [mixer](const auto& x) {
        using T = std::decay_t<decltype(x)>;
        if constexpr (std::is_same_v<T, std::string>) {
          mixer->add(x);
        } else if constexpr (std::is_same_v<T, double>) {
          mixer->add(std::bit_cast<uint64_t>(x));
        } else if constexpr (std::is_same_v<T, ir::Shape>) {
          add_shape(mixer, x);
        } else if constexpr (std::is_same_v<T, std::vector<int64_t>>) {
          for (const int64_t n : x) mixer->add(static_cast<uint64_t>(n));
        } else if constexpr (std::is_same_v<T, std::vector<double>>) {
          for (const double n : x) mixer->add(std::bit_cast<uint64_t>(n));
        } else if constexpr (std::is_same_v<T, std::vector<std::string>>) {
          for (const std::string& s : x) mixer->add(s);
        } else if constexpr (std::is_same_v<T, ir::Tensor>) {
          // The bytes are compared, not hashed: large constants are rare.
          mixer->add(static_cast<uint64_t>(x.num_elements()));
        } else {
          mixer->add(static_cast<uint64_t>(x));
        }
      },
      value);
}

bool same_attrs(const ir::AttrMap& a, const ir::AttrMap& b) {
  if (a.size() != b.size()) return false;
  for (auto x = a.begin(), y = b.begin(); x != a.end(); ++x, ++y) {
    if (x->first != y->first || !ir::attr_equal(x->second, y->second)) return false;
  }
  return true;
}

}  // namespace

uint64_t hash_of(const CallView& call) {
  Mixer mixer;
  mixer.add(reinterpret_cast<uintptr_t>(call.schema));
  mixer.add(call.extra);
  for (const auto& [name, value] : call.attrs) {
    mixer.add(name);
    add_attr(&mixer, value);
  }
  for (const ir::Tensor* input : call.inputs) {
    mixer.add(static_cast<uint64_t>(input->dtype()));
    add_shape(&mixer, input->shape());
  }
  return mixer.value();
}

bool same_call(const CallKey& key, const CallView& call) {
  if (key.schema != call.schema || key.extra != call.extra) return false;
  if (key.inputs.size() != call.inputs.size()) return false;
  for (size_t i = 0; i < key.inputs.size(); ++i) {
    if (key.inputs[i].dtype != call.inputs[i]->dtype()) return false;
    if (!(key.inputs[i].shape == call.inputs[i]->shape())) return false;
  }
  return same_attrs(key.attrs, call.attrs);
}

CallKey key_of(const CallView& call) {
  CallKey key{.schema = call.schema, .attrs = call.attrs, .inputs = {}, .extra = call.extra};
  key.inputs.reserve(call.inputs.size());
  for (const ir::Tensor* input : call.inputs) {
    key.inputs.push_back({input->dtype(), input->shape()});
  }
  return key;
}

}  // namespace sidereal::eager
