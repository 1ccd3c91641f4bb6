#include "sidereal/sys/posix/identity.h"

#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <iterator>
#include <vector>

#include "sidereal/base/printable.h"
#include "sidereal/base/strings.h"

namespace sidereal::sys::posix {

namespace {

std::string user_name() {
  constexpr size_t kEntryBytes = 16'384;
  const uid_t id = ::geteuid();
  std::vector<char> room(kEntryBytes);
  passwd entry = {};
  passwd* found = nullptr;
  const bool has_name = ::getpwuid_r(id, &entry, room.data(), room.size(), &found) == 0 &&
                        found != nullptr && *found->pw_name != '\0';
  return has_name ? found->pw_name : std::to_string(id);
}

}  // namespace

std::string host_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return "an unnamed host";
  return name.data();
}

std::string own_command() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::string words{std::istreambuf_iterator<char>(file), {}};
  std::replace(words.begin(), words.end(), '\0', ' ');
  return base::printable(base::trim(words));
}

Identity identity() {
  return {.user = user_name(), .host = host_name(), .pid = ::getpid(), .program = own_command()};
}

}  // namespace sidereal::sys::posix
