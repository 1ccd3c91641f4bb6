#include <string>

#include "sidereal/base/check.h"
#include "sidereal/scrape/http_request.h"
#include "tests/fuzz/fuzz.h"

/// What somebody sends to the port for Prometheus: a request is a part of what came, and the same
/// whatever follows its head.
SR_FUZZ_TARGET(http_request) {
  using namespace sidereal;
  const auto end = scrape::end_of_head(input);
  if (!end) return;
  SR_CHECK(*end <= input.size(), "a head of {} bytes, of {}", *end, input.size());
  const std::string head(input.substr(0, *end));
  SR_CHECK(scrape::end_of_head(head) == end, "the end is somewhere else without the rest");
  const auto request = scrape::read_request(head);
  const auto whole = scrape::read_request(input);
  SR_CHECK(request.has_value() == whole.has_value(), "the rest makes a difference");
  if (!request) return;
  SR_CHECK(request->method == whole->method && request->path == whole->path,
           "the rest makes a difference");
  SR_CHECK(head.starts_with(std::string(request->method) + " " + std::string(request->path)),
           "the request is no part of its head");
}
