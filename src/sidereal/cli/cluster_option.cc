#include "sidereal/cli/cluster_option.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>

namespace sidereal::cli {

Result<cluster::ClusterSpec> read_cluster(const std::string& given) {
  if (given.find('{') != std::string::npos) {
    Result<cluster::ClusterSpec> read = cluster::ClusterSpec::from_json(given);
    if (!read.ok()) return base::with_context(read.status(), "--cluster");
    return read;
  }
  std::error_code ignored;
  if (std::filesystem::is_directory(given, ignored)) {
    return base::invalid_argument("--cluster: '{}' is a folder; a file with JSON was expected",
                                  given);
  }
  std::ifstream file(given);
  if (!file) {
    return base::not_found("--cluster: cannot read '{}': {}", given, std::strerror(errno));
  }
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  Result<cluster::ClusterSpec> read = cluster::ClusterSpec::from_json(text);
  if (!read.ok()) return base::with_context(read.status(), "--cluster: " + given);
  return read;
}

}  // namespace sidereal::cli
