#include "sidereal/cli/terminal.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <string_view>

#include "sidereal/cli/interrupt.h"

namespace sidereal::cli {

namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr std::string_view kEnter = "\x1b[?1049h\x1b[?25l";  // Other screen, no cursor.
constexpr std::string_view kLeave = "\x1b[?25h\x1b[?1049l";
constexpr char kCtrlC = 3;
constexpr char kCtrlD = 4;

void put(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

/// Milliseconds until `until`, for poll().
int left(steady_clock::time_point until) {
  const auto rest =
      std::chrono::duration_cast<milliseconds>(until - steady_clock::now()).count() + 1;
  return static_cast<int>(std::clamp<int64_t>(rest, 0, 1000));
}

class TerminalScreen final : public Screen {
 public:
  TerminalScreen() {
    has_keys_ = isatty(STDIN_FILENO) == 1 && tcgetattr(STDIN_FILENO, &before_) == 0;
    if (has_keys_) {
      termios keys = before_;
      // Keys one by one, not shown; Ctrl-C is a key like others.
      keys.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO | ISIG);
      tcsetattr(STDIN_FILENO, TCSANOW, &keys);
    }
    put(kEnter);
  }

  ~TerminalScreen() override {
    put(kLeave);
    if (has_keys_) tcsetattr(STDIN_FILENO, TCSANOW, &before_);
  }

  void show(const std::string& text) override {
    winsize size{};
    const bool known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
    put("\x1b[H" + fit_screen(text, known ? size.ws_col : 80, known ? size.ws_row : 24) + "\x1b[J");
  }

  bool wait_for_end(milliseconds limit) override {
    const auto until = steady_clock::now() + limit;
    while (!interrupted() && steady_clock::now() < until) {
      pollfd keys = {.fd = has_keys_ ? STDIN_FILENO : -1, .events = POLLIN, .revents = 0};
      if (poll(&keys, 1, left(until)) <= 0) continue;
      char key = 0;
      if (read(STDIN_FILENO, &key, 1) <= 0) return true;
      if (key == 'q' || key == kCtrlC || key == kCtrlD) return true;
    }
    return interrupted();
  }

 private:
  bool has_keys_ = false;
  termios before_{};
};

}  // namespace

std::string fit_screen(const std::string& text, size_t columns, size_t rows) {
  std::string out;
  size_t at = 0;
  for (size_t row = 0; row < rows && at < text.size(); ++row) {
    const size_t end = std::min(text.find('\n', at), text.size());
    if (row > 0) out += "\r\n";
    // What stood further right is wiped out.
    out += text.substr(at, std::min(end - at, columns)) + "\x1b[K";
    at = end + 1;
  }
  return out;
}

Screen::~Screen() = default;

std::unique_ptr<Screen> Screen::open() {
  if (isatty(STDOUT_FILENO) != 1) return nullptr;
  return std::make_unique<TerminalScreen>();
}

bool wait_for_interrupt(milliseconds limit) {
  const auto until = steady_clock::now() + limit;
  while (!interrupted() && steady_clock::now() < until) {
    if (poll(nullptr, 0, left(until)) > 0) continue;
  }
  return interrupted();
}

}  // namespace sidereal::cli
