#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

namespace sidereal::cli {

/// Text that is cut to `columns` and `rows`, rows ending in "\r\n".
std::string fit_screen(const std::string& text, size_t columns, size_t rows);

/// The screen that standard output is, for text that is drawn again and again. What stood there
/// before is back when the object goes. For main(): one at a time. Thread: core-local.
class Screen {
 public:
  /// nullptr when standard output is no terminal.
  static std::unique_ptr<Screen> open();
  virtual ~Screen();
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  /// Shows `text` from the upper left corner, cut to the size of the screen.
  virtual void show(const std::string& text) = 0;
  /// Waits; true when the user wants to end it (q, Ctrl-C, Ctrl-D), or a signal came, before
  /// `limit` has passed.
  virtual bool wait_for_end(std::chrono::milliseconds limit) = 0;

 protected:
  Screen() = default;
};

/// Of an option in seconds.
inline std::chrono::milliseconds to_ms(double seconds) {
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
}

/// Waits for a signal (see catch_interrupts()): true when one has come before `limit` has passed.
bool wait_for_interrupt(std::chrono::milliseconds limit);

}  // namespace sidereal::cli
