#include "sidereal/scrape/http_request.h"

namespace sidereal::scrape {

std::optional<size_t> end_of_head(std::string_view bytes) {
  constexpr std::string_view kEmptyLine = "\r\n\r\n";
  const size_t found = bytes.find(kEmptyLine);
  if (found == bytes.npos) return std::nullopt;
  return found + kEmptyLine.size();
}

std::optional<HttpRequest> read_request(std::string_view head) {
  const std::string_view line = head.substr(0, head.find("\r\n"));
  const size_t first = line.find(' ');
  if (first == line.npos) return std::nullopt;
  const size_t second = line.find(' ', first + 1);
  if (second == line.npos || !line.substr(second + 1).starts_with("HTTP/1.")) return std::nullopt;
  const std::string_view target = line.substr(first + 1, second - first - 1);
  return HttpRequest{.method = line.substr(0, first), .path = target.substr(0, target.find('?'))};
}

}  // namespace sidereal::scrape
