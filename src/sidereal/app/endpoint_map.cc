#include "sidereal/app/endpoint_map.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <utility>

#include "sidereal/base/strings.h"

namespace sidereal::app {

namespace {

constexpr size_t kBytesMax = size_t{16} << 20;

/// "host:port" with a port that one can connect to.
Result<sys::Address> address_of(std::string_view text) {
  SR_ASSIGN_OR_RETURN(sys::Address address, sys::Address::parse(base::trim(text)));
  if (address.port > 0) return address;
  return base::invalid_argument("address '{}' has port 0; nobody can connect to that",
                                base::trim(text));
}

}  // namespace

Status EndpointMap::add(std::string_view line, int number) {
  line = base::trim(line.substr(0, line.find('#')));
  if (line.empty()) return {};
  const std::vector<std::string> sides = base::split(line, '=');
  if (sides.size() != 2) {
    return base::invalid_argument(
        "'{}' is no pair; write one HOST:PORT=HOST:PORT in a line, a task's address in the cluster "
        "and that of its data port",
        line.substr(0, 200));
  }
  SR_ASSIGN_OR_RETURN(const sys::Address task, address_of(sides[0]));
  SR_ASSIGN_OR_RETURN(sys::Address data, address_of(sides[1]));
  const std::string key = task.to_string();
  const auto known = entries_.find(key);
  if (known != entries_.end()) {
    return base::invalid_argument("{} stands in line {} already; remove one of the two", key,
                                  known->second.line);
  }
  const auto [at, is_new] = data_lines_.emplace(data.to_string(), number);
  if (!is_new) {
    return base::invalid_argument(
        "data port {} is that of line {} already; give each task one of its own", at->first,
        at->second);
  }
  entries_.emplace(key, Entry{std::move(data), number});
  return {};
}

Result<EndpointMap> EndpointMap::parse(std::string_view text, const std::string& file) {
  if (text.size() > kBytesMax) {
    return base::invalid_argument("{} has {} bytes; an endpoint map has {} at most", file,
                                  text.size(), kBytesMax);
  }
  EndpointMap out;
  out.file_ = file;
  int number = 0;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    ++number;
    const Status added = out.add(text.substr(0, end), number);
    if (!added.ok()) return base::with_context(added, fmt::format("{}:{}", file, number));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  return out;
}

Result<EndpointMap> EndpointMap::read(const std::string& folder) {
  std::error_code ignored;
  if (std::filesystem::is_regular_file(folder, ignored)) {
    return base::not_found("'{}' is a file; give the folder that has a file {}", folder, kFileName);
  }
  const std::string path = (std::filesystem::path(folder) / kFileName).string();
  std::ifstream file(path);
  if (!file) {
    return base::not_found("cannot read the endpoint map '{}': {}; give the folder that has it",
                           path, std::strerror(errno));
  }
  std::string text(kBytesMax + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.bad() || std::filesystem::is_directory(path, ignored)) {
    return base::not_found("cannot read the endpoint map '{}'", path);
  }
  text.resize(static_cast<size_t>(file.gcount()));
  return parse(text, path);
}

std::optional<sys::Address> EndpointMap::find(const std::string& address) const {
  const Result<sys::Address> parsed = sys::Address::parse(address);
  if (!parsed.ok()) return std::nullopt;
  const auto found = entries_.find(parsed->to_string());
  if (found == entries_.end()) return std::nullopt;
  return found->second.data;
}

std::vector<std::string> EndpointMap::not_in(const cluster::ClusterSpec& cluster) const {
  std::set<std::string> members;
  for (const std::string& job : cluster.jobs()) {
    const auto tasks = cluster.tasks(job);
    if (!tasks.ok()) continue;
    for (const auto& [index, address] : *tasks) {
      const Result<sys::Address> parsed = sys::Address::parse(address);
      if (parsed.ok()) members.insert(parsed->to_string());
    }
  }
  std::vector<std::string> out;
  for (const auto& [address, entry] : entries_) {
    if (members.contains(address)) continue;
    out.push_back(fmt::format("{}:{}: {}", file_, entry.line, address));
  }
  return out;
}

}  // namespace sidereal::app
