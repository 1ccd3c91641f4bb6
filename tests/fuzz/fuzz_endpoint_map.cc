#include "sidereal/app/endpoint_map.h"
#include "sidereal/base/check.h"
#include "tests/fuzz/fuzz.h"

/// A file ".endpoint_map" of a user.
SR_FUZZ_TARGET(endpoint_map) {
  namespace app = sidereal::app;
  const auto map = app::EndpointMap::parse(input, "file");
  if (!map.ok()) {
    SR_CHECK(map.status().code() == sidereal::StatusCode::kInvalidArgument);
    return;
  }
  // Whom nobody knows is an unauthenticated peer in a cluster without tasks.
  for (const std::string& line : map->not_in({})) {
    const std::string address = line.substr(line.rfind(": ") + 2);
    const auto found = map->find(address);
    SR_CHECK(found && found->port > 0, "{}", line);
  }
}
