#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sidereal/base/status.h"
#include "sidereal/cluster/cluster_spec.h"
#include "sidereal/sys/address.h"

namespace sidereal::app {

/// Where the tasks of a cluster have their data ports, as a file ".endpoint_map" says it, by the
/// addresses that they have in the cluster. Tasks it does not name are asked for theirs.
///
/// A line is "HOST:PORT=HOST:PORT": the address in the cluster, and that of the data port. Spaces
/// around both, empty lines, and what follows a "#" do not count. Value type.
/// Source: DeepRec's .endpoint_map.
class EndpointMap {
 public:
  static constexpr const char* kFileName = ".endpoint_map";

  EndpointMap() = default;
  /// `file` is what errors name. kInvalidArgument, with the line, for one that is no pair of
  /// addresses with ports from 1 to 65535, for an address that stands in two lines on one side,
  /// and for a text beyond 16 MiB.
  static Result<EndpointMap> parse(std::string_view text, const std::string& file);
  /// Reads the file in `folder`. kNotFound when it is not there or cannot be read.
  static Result<EndpointMap> read(const std::string& folder);

  /// Of the task with this address in the cluster; none when the file does not name it.
  [[nodiscard]] std::optional<sys::Address> find(const std::string& address) const;
  /// Lines for addresses that no task of the cluster has: "FILE:3: 10.0.0.1:2222".
  [[nodiscard]] std::vector<std::string> not_in(const cluster::ClusterSpec& cluster) const;
  /// That it was read from; "" when there is none.
  [[nodiscard]] const std::string& file() const { return file_; }

 private:
  struct Entry {
    sys::Address data;
    int line = 0;
  };
  Status add(std::string_view line, int number);

  std::string file_;
  std::map<std::string, Entry> entries_;   // By what Address::to_string() makes of the address.
  std::map<std::string, int> data_lines_;  // Where a data port stands.
};

}  // namespace sidereal::app
