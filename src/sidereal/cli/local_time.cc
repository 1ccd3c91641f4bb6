#include "sidereal/cli/local_time.h"

#include <array>

namespace sidereal::cli {

std::string local_time(std::time_t seconds) {
  std::tm local = {};
  localtime_r(&seconds, &local);
  std::array<char, 32> out = {};
  std::strftime(out.data(), out.size(), "%F %T", &local);
  return out.data();
}

}  // namespace sidereal::cli
