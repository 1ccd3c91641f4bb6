#include <absl/debugging/symbolize.h>
#include <execinfo.h>
#include <fcntl.h>
#include <nanobind/nanobind.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstring>
#include <string_view>

#include "bindings.h"

/// What a process that crashes leaves behind, for runs of tests: they keep what is written to
/// standard error in a file that is gone with the process.
namespace sidereal::python {

namespace nb = nanobind;
using namespace nb::literals;

namespace {

constexpr std::array kSignals = {SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV};
constexpr off_t kLastWordsMax = 4096;

// A handler of a signal has nothing else to look at.
int report_to = -1;                                     // NOLINT
std::array<struct sigaction, kSignals.size()> earlier;  // NOLINT

void say(std::string_view text) { static_cast<void>(write(report_to, text.data(), text.size())); }

/// The end of what went to standard error, if that is a file: why terminate() or a check has
/// called abort().
void say_last_words() {
  struct stat file {};
  if (fstat(STDERR_FILENO, &file) != 0 || !S_ISREG(file.st_mode) || file.st_size == 0) return;
  static std::array<char, kLastWordsMax> words;
  const off_t from = std::max<off_t>(0, file.st_size - kLastWordsMax);
  const ssize_t count = pread(STDERR_FILENO, words.data(), words.size(), from);
  if (count <= 0) return;
  say("crash: the end of standard error:\n");
  say({words.data(), static_cast<size_t>(count)});
  say("\n");
}

void say_stack() {
  static std::array<void*, 64> frames;
  static std::array<char, 1024> name;
  const int count = backtrace(frames.data(), static_cast<int>(frames.size()));
  say("crash: stack of the thread:\n");
  for (int i = 0; i < count; ++i) {
    const bool is_known =
        absl::Symbolize(frames[static_cast<size_t>(i)], name.data(), static_cast<int>(name.size()));
    say("  ");
    say(is_known ? name.data() : "?");
    say("\n");
  }
}

/// The handler that was there before goes on: Python's has the stacks of its threads.
void report(int number) {
  say("crash: signal ");
  say(sigabbrev_np(number));
  say("\n");
  say_last_words();
  say_stack();
  const auto at = std::ranges::find(kSignals, number) - kSignals.begin();
  sigaction(number, &earlier[static_cast<size_t>(at)], nullptr);
  static_cast<void>(raise(number));  // Comes when this has returned.
}

void report_crashes(int file) {
  report_to = file;
  absl::InitializeSymbolizer("");
  std::array<void*, 1> frame{};
  backtrace(frame.data(), 1);  // The first call loads a library.
  struct sigaction action {};
  action.sa_handler = report;
  for (size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &action, &earlier[i]);
}

}  // namespace

void bind_crash_report(nb::module_& m) { m.def("report_crashes", report_crashes, "file"_a); }

}  // namespace sidereal::python
