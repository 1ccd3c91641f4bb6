#pragma once

#include <optional>
#include <string_view>

namespace sidereal::scrape {

/// What a request asks for; shows the text it was read from.
struct HttpRequest {
  std::string_view method;  ///< "GET"
  std::string_view path;    ///< "/metrics", without a query.
};

/// Where the head of a request ends, after its empty line; nothing while more must come.
std::optional<size_t> end_of_head(std::string_view bytes);

/// Reads the first line of a head; its other lines change nothing here. Nothing for what is not
/// HTTP/1.
std::optional<HttpRequest> read_request(std::string_view head);

}  // namespace sidereal::scrape
