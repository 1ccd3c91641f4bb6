#include "tests/fuzz/call_script.h"

#include <google/protobuf/descriptor.h>

#include <algorithm>
#include <random>
#include <utility>

#include "sidereal/base/check.h"
#include "tests/fuzz/message_changes.h"

namespace sidereal::fuzz {

namespace {

constexpr uint8_t kAwaitsBit = 0x10;
constexpr uint8_t kDeafBit = 0x20;
constexpr size_t kBodyMax = 0xffff;
constexpr size_t kActionsMax = 32;

}  // namespace

std::vector<Action> parse_script(std::string_view bytes) {
  std::vector<Action> out;
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(bytes[i]); };
  while (bytes.size() >= 4 && out.size() < kActionsMax) {
    Action& action = out.emplace_back();
    action.kind = static_cast<Action::Kind>((byte(0) & 0x0f) % Action::kKinds);
    action.awaits = (byte(0) & kAwaitsBit) != 0;
    action.deaf = (byte(0) & kDeafBit) != 0;
    action.target = byte(1);
    const size_t size = byte(2) + size_t{256} * byte(3);
    bytes.remove_prefix(4);
    action.body = bytes.substr(0, size);
    bytes.remove_prefix(action.body.size());
  }
  return out;
}

std::string to_bytes(const std::vector<Action>& script) {
  std::string out;
  for (const Action& action : script) {
    const size_t size = std::min(action.body.size(), kBodyMax);
    out += static_cast<char>(action.kind | (action.awaits ? kAwaitsBit : 0) |
                             (action.deaf ? kDeafBit : 0));
    out += static_cast<char>(action.target);
    out += static_cast<char>(size % 256);
    out += static_cast<char>(size / 256);
    out += action.body.substr(0, size);
  }
  return out;
}

void add_methods(const std::shared_ptr<grpc::Channel>& channel, const std::string& service,
                 std::vector<Method>* out) {
  const auto* const type =
      google::protobuf::DescriptorPool::generated_pool()->FindServiceByName(service);
  SR_CHECK(type != nullptr, "no service {}", service);
  for (int i = 0; i < type->method_count(); ++i) {
    out->push_back({.channel = channel, .type = type->method(i)});
  }
}

std::string change_script(std::string_view bytes, size_t max, uint32_t seed,
                          const std::vector<Method>& methods, const ChangeBytes& change) {
  std::minstd_rand random(seed);
  const auto below = [&](size_t n) { return static_cast<size_t>(random()) % n; };
  std::vector<Action> script = parse_script(bytes);
  if (script.empty() || below(20) == 0) return change(std::string(bytes), max);
  const size_t at = below(script.size());
  Action& action = script[at];
  switch (below(16)) {
    case 0:
      script.erase(script.begin() + static_cast<std::ptrdiff_t>(at));
      break;
    case 1:
      script.insert(script.begin() + static_cast<std::ptrdiff_t>(at), Action(action));
      break;
    case 2:
      std::swap(script[at], script[below(script.size())]);
      break;
    case 3:
      action.kind = static_cast<Action::Kind>(below(Action::kKinds));
      break;
    case 4:
      action.target = static_cast<uint8_t>(below(methods.size()));
      break;
    case 5:
      (below(2) == 0 ? action.awaits : action.deaf) ^= true;
      break;
    default: {
      // The message it is for: that of its method, or of the method of its call.
      std::vector<uint8_t> opened;
      for (const Action& before : script) {
        if (&before == &action) break;
        if (before.kind == Action::kOpen) opened.push_back(before.target);
      }
      uint8_t method = action.target;
      if (action.kind != Action::kOpen && !opened.empty()) method = opened[method % opened.size()];
      const auto* const type = methods[method % methods.size()].type->input_type();
      const size_t room =
          std::min(kBodyMax, max - std::min(max, bytes.size() - action.body.size()));
      action.body = change_message(action.body, *type, room, &random, change);
    }
  }
  std::string out = to_bytes(script);
  out.resize(std::min(out.size(), max));
  return out;
}

std::string cross_scripts(std::string_view a, std::string_view b, size_t max, uint32_t seed) {
  std::minstd_rand random(seed);
  std::vector<Action> out = parse_script(a);
  const std::vector<Action> other = parse_script(b);
  out.resize(random() % (out.size() + 1));
  const auto from = static_cast<std::ptrdiff_t>(random() % (other.size() + 1));
  out.insert(out.end(), other.begin() + from, other.end());
  std::string bytes = to_bytes(out);
  bytes.resize(std::min(bytes.size(), max));
  return bytes;
}

}  // namespace sidereal::fuzz
