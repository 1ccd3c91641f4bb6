#include "sidereal/cli/cluster_option.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>

namespace sidereal::cli {

namespace {

Result<ClusterOption> parse(const std::string& text, const std::string& where) {
  ClusterOption out;
  Result<cluster::ClusterSpec> cluster = cluster::ClusterSpec::from_json(text);
  if (!cluster.ok()) return base::with_context(cluster.status(), where);
  out.cluster = *std::move(cluster);
  Result<std::string> rpc_layer = cluster::rpc_layer_of(text);
  if (!rpc_layer.ok()) return base::with_context(rpc_layer.status(), where);
  out.rpc_layer = *std::move(rpc_layer);
  return out;
}

}  // namespace

Result<ClusterOption> read_cluster_option(const std::string& given) {
  if (given.find('{') != std::string::npos) return parse(given, "--cluster");
  std::error_code ignored;
  if (std::filesystem::is_directory(given, ignored)) {
    return base::invalid_argument("--cluster: '{}' is a folder; a file with JSON was expected",
                                  given);
  }
  std::ifstream file(given);
  if (!file) {
    return base::not_found("--cluster: cannot read '{}': {}", given, std::strerror(errno));
  }
  return parse({std::istreambuf_iterator<char>(file), {}}, "--cluster: " + given);
}

Result<cluster::ClusterSpec> read_cluster(const std::string& given) {
  SR_ASSIGN_OR_RETURN(ClusterOption read, read_cluster_option(given));
  return std::move(read.cluster);
}

}  // namespace sidereal::cli
