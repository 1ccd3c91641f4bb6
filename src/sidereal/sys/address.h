#pragma once

#include <string>
#include <string_view>

#include "sidereal/base/status.h"

namespace sidereal::sys {

/// Host and port. The host is an IPv4 or IPv6 number or a name; port 0 means "the system chooses"
/// where one listens. Value type.
struct Address {
  std::string host;
  int port = 0;

  /// Parses "host:port" and "[ipv6]:port"; kInvalidArgument says what is wrong.
  static Result<Address> parse(std::string_view text);
  /// "127.0.0.1:2222" or "[::1]:2222".
  [[nodiscard]] std::string to_string() const;
  /// True for 127.0.0.0/8, ::1 and "localhost" (and names below it).
  [[nodiscard]] bool is_loopback() const;

  friend bool operator==(const Address&, const Address&) = default;
};

}  // namespace sidereal::sys
