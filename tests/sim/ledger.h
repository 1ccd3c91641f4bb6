#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace sidereal::sim {

/// What a call asks for: wire::FrameHeader::kind.
enum class Ask : uint16_t { kPull = 1, kPush = 2 };

/// The truth about all pushes, which nobody in the simulation sees, and what was found wrong.
class Ledger {
 public:
  /// A life of a ps has applied push `number` of a writer.
  void applied(uint64_t writer, uint64_t number, uint64_t life) {
    const auto [at, is_new] = lives_.try_emplace(key(writer, number), life);
    if (!is_new) {
      complain("push {} of writer {} was applied by life {} and again by life {}", number, writer,
               at->second, life);
    }
    ++applied_;
  }
  /// A writer was told that its push is done.
  void acknowledged(uint64_t writer, uint64_t number, uint64_t life) {
    const auto at = lives_.find(key(writer, number));
    if (at == lives_.end()) {
      complain("push {} of writer {} was acknowledged by life {} and never applied", number, writer,
               life);
    } else if (at->second != life) {
      complain("push {} of writer {} was acknowledged by life {}, but applied by life {}", number,
               writer, life, at->second);
    }
    ++acknowledged_;
  }
  [[nodiscard]] bool is_applied(uint64_t writer, uint64_t number) const {
    return lives_.contains(key(writer, number));
  }

  template <class... Args>
  void complain(fmt::format_string<Args...> text, Args&&... args) {
    if (complaints_.size() < 10) {
      complaints_.push_back(fmt::format(text, std::forward<Args>(args)...));
    }
  }
  [[nodiscard]] const std::vector<std::string>& complaints() const { return complaints_; }
  [[nodiscard]] int64_t applied_count() const { return applied_; }
  [[nodiscard]] int64_t acknowledged_count() const { return acknowledged_; }

 private:
  static uint64_t key(uint64_t writer, uint64_t number) { return writer << 32 | number; }

  std::unordered_map<uint64_t, uint64_t> lives_;  // of the ps that applied a push
  std::vector<std::string> complaints_;
  int64_t applied_ = 0;
  int64_t acknowledged_ = 0;
};

}  // namespace sidereal::sim
