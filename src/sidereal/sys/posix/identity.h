#pragma once

#include <cstdint>
#include <string>

namespace sidereal::sys::posix {

/// Who runs this process, and where, for people who read of it elsewhere. Value type.
struct Identity {
  std::string user;  ///< Of the effective user id; the number, where it has no name.
  std::string host;
  int64_t pid = 0;
  std::string program;  ///< The command line, as one printable line.
};

/// Reads it. Thread: any.
Identity identity();

/// Its host. Thread: any.
std::string host_name();
/// Its command line, as one printable line; "": it cannot be read. Thread: any.
std::string own_command();

}  // namespace sidereal::sys::posix
