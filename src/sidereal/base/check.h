#pragma once

#include <fmt/format.h>

#include <string>

/// `SR_CHECK(cond, "message {}", value)` aborts on a bug of ours. Never use it on input from a
/// peer, a file, a user or Python: those get a Status.
namespace sidereal::base {

/// Prints the failed condition with its place and aborts. Called by SR_CHECK only.
[[noreturn]] void check_failed(const char* file, int line, const char* condition,
                               const std::string& message);

}  // namespace sidereal::base

#define SR_CHECK(cond, ...)                                                                   \
  do {                                                                                        \
    if (!(cond)) [[unlikely]]                                                                 \
      ::sidereal::base::check_failed(__FILE__, __LINE__, #cond, fmt::format("" __VA_ARGS__)); \
  } while (false)

#ifdef SR_DCHECK_ON
#define SR_DCHECK(cond, ...) SR_CHECK(cond, __VA_ARGS__)
#else
#define SR_DCHECK(cond, ...) \
  do {                       \
  } while (false)
#endif
