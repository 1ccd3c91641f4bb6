#include "sidereal/sys/address.h"

#include <algorithm>

#include "sidereal/base/strings.h"

namespace sidereal::sys {
namespace {

bool is_loopback_ipv4(std::string_view host) {
  if (!host.starts_with("127.")) return false;
  const std::vector<std::string> parts = base::split(host, '.');
  if (parts.size() != 4) return false;
  for (const std::string& part : parts) {
    const Result<int64_t> value = base::parse_int(part);
    if (!value.ok() || *value < 0 || *value > 255) return false;
  }
  return true;
}

bool is_blank_or_control(char c) { return static_cast<unsigned char>(c) <= ' ' || c == '\x7f'; }

}  // namespace

Result<Address> Address::parse(std::string_view text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) {
    return base::invalid_argument("address '{}' has no port; write host:port", text);
  }
  std::string_view host = text.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) {
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string_view::npos) {
    return base::invalid_argument("address '{}' is ambiguous; write [ipv6]:port", text);
  }
  if (host.empty()) return base::invalid_argument("address '{}' has no host", text);
  if (std::ranges::any_of(host, is_blank_or_control)) {
    return base::invalid_argument("address '{}' has a blank or a control character in its host",
                                  text);
  }
  const Result<int64_t> port = base::parse_int(text.substr(colon + 1));
  if (!port.ok() || *port < 0 || *port > 65'535) {
    return base::invalid_argument("address '{}' has no port between 0 and 65535", text);
  }
  return Address{std::string(host), static_cast<int>(*port)};
}

std::string Address::to_string() const {
  if (host.find(':') != std::string::npos) return fmt::format("[{}]:{}", host, port);
  return fmt::format("{}:{}", host, port);
}

bool Address::is_loopback() const {
  return host == "localhost" || host.ends_with(".localhost") || host == "::1" ||
         is_loopback_ipv4(host);
}

}  // namespace sidereal::sys
