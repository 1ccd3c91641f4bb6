#include "sidereal/cluster/cluster_spec.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "sidereal/base/strings.h"

namespace sidereal::cluster {

using base::invalid_argument;
using Json = nlohmann::json;
using Tasks = ClusterSpec::Tasks;

namespace {

/// A list is padded up to the highest index: text of a few bytes must not ask for gigabytes.
constexpr int kIndexMax = 1'000'000;
constexpr size_t kJsonBytesMax = size_t{64} << 20;

bool is_dense_job(const Tasks& tasks) {
  return !tasks.empty() && tasks.rbegin()->first == static_cast<int>(tasks.size()) - 1;
}

/// As Python writes a string.
std::string python_text(std::string_view text) {
  const char mark = text.find('\'') != text.npos && text.find('"') == text.npos ? '"' : '\'';
  std::string out(1, mark);
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == mark || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20 || byte == 0x7F) {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      out += c;
    }
  }
  return out + mark;
}

Result<std::string> address_of(const Json& value, const std::string& job, std::string_view task) {
  if (!value.is_string()) {
    return invalid_argument("cluster: the address of task {} of job '{}' is {}, not a string", task,
                            job, value.type_name());
  }
  return value.get<std::string>();
}

Result<Tasks> tasks_of(const Json& value, const std::string& job) {
  Tasks out;
  if (value.is_array()) {
    for (size_t i = 0; i < value.size(); ++i) {
      SR_ASSIGN_OR_RETURN(out[static_cast<int>(i)],
                          address_of(value[i], job, fmt::format("{}", i)));
    }
    return out;
  }
  if (!value.is_object()) {
    return invalid_argument(
        "cluster: job '{}' is {}; expected a list of addresses, or an object from task index to "
        "address",
        job, value.type_name());
  }
  for (const auto& [key, address] : value.items()) {
    const Result<int64_t> parsed = base::parse_int(key);
    const int index = parsed.ok() ? static_cast<int>(*parsed) : 0;
    if (!parsed.ok() || index != *parsed) {
      return invalid_argument("cluster: '{}' in job '{}' is no task index", key, job);
    }
    std::string text;
    SR_ASSIGN_OR_RETURN(text, address_of(address, job, key));
    if (!out.emplace(index, std::move(text)).second) {
      return invalid_argument("cluster: job '{}' has task {} twice", job, index);
    }
  }
  return out;
}

/// Where a text that is no JSON is wrong, and how: "line 2, column 7: ...".
std::string json_error(std::string_view text) {
  constexpr size_t kErrorBytesMax = 300;
  try {
    [[maybe_unused]] const Json parsed = Json::parse(text);
  } catch (const Json::parse_error& error) {
    const std::string_view what = error.what();
    const std::string_view mark = " at ";
    const size_t where = what.find(mark);
    return base::message_text(where == what.npos ? what : what.substr(where + mark.size()),
                              kErrorBytesMax);
  }
  return "";
}

/// Whether a text is not a cluster, but has one: a job named "cluster" has addresses in it.
bool has_cluster(const Json& json) {
  const auto it = json.find("cluster");
  if (it == json.end() || !it->is_object()) return false;
  return std::none_of(it->begin(), it->end(), [](const Json& job) { return job.is_string(); });
}

}  // namespace

Result<ClusterSpec> ClusterSpec::from_json(std::string_view text) {
  if (text.size() > kJsonBytesMax) {
    return invalid_argument("a cluster of {} bytes; at most {} are read", text.size(),
                            kJsonBytesMax);
  }
  // The last of two equal keys would win: a job that vanishes is found here.
  std::vector<std::set<std::string>> seen;
  std::string twice;
  const auto watch = [&](int depth, Json::parse_event_t event, Json& parsed) {
    const auto level = static_cast<size_t>(depth);
    if (event == Json::parse_event_t::object_start) {
      seen.resize(level + 1);
      seen[level].clear();
    } else if (event == Json::parse_event_t::key &&
               !seen[level - 1].insert(parsed.get<std::string>()).second) {
      twice = parsed.get<std::string>();
    }
    return true;
  };
  Json json = Json::parse(text, watch, false);
  if (json.is_discarded()) return invalid_argument("the cluster is no JSON: {}", json_error(text));
  if (!json.is_object()) {
    return invalid_argument("the cluster is {}; expected an object from job to addresses",
                            json.type_name());
  }
  if (!twice.empty()) return invalid_argument("cluster: '{}' is there twice", twice);
  if (has_cluster(json)) json = Json(json["cluster"]);
  ClusterSpec out;
  for (const auto& [job, value] : json.items()) {
    SR_ASSIGN_OR_RETURN(Tasks tasks, tasks_of(value, job));
    SR_RETURN_IF_ERROR(out.add_job(job, std::move(tasks)));
  }
  return out;
}

std::string ClusterSpec::to_json() const {
  Json out = Json::object();
  for (const auto& [job, tasks] : jobs_) {
    Json& value = out[job] = is_dense_job(tasks) ? Json::array() : Json::object();
    for (const auto& [index, address] : tasks) {
      if (value.is_array()) {
        value.push_back(address);
      } else {
        value[std::to_string(index)] = address;
      }
    }
  }
  return out.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Status ClusterSpec::add_job(const std::string& name, Tasks tasks) {
  if (!base::is_name(name)) {
    return invalid_argument(
        "'{}' is no name of a job: a name is a letter, then letters, digits and '_'", name);
  }
  if (!tasks.empty() && (tasks.begin()->first < 0 || tasks.rbegin()->first > kIndexMax)) {
    const int index = tasks.begin()->first < 0 ? tasks.begin()->first : tasks.rbegin()->first;
    return invalid_argument("job '{}' has a task {}; indices are 0 to {}", name, index, kIndexMax);
  }
  if (!jobs_.emplace(name, std::move(tasks)).second) {
    return base::already_exists("job '{}' is in the cluster already", name);
  }
  return {};
}

std::vector<std::string> ClusterSpec::jobs() const {
  std::vector<std::string> out;
  for (const auto& [job, tasks] : jobs_) out.push_back(job);
  return out;
}

Status ClusterSpec::add_job(const std::string& name, const std::vector<std::string>& addresses) {
  Tasks tasks;
  for (const std::string& address : addresses) {
    tasks.emplace_hint(tasks.end(), static_cast<int>(tasks.size()), address);
  }
  return add_job(name, std::move(tasks));
}

Result<const Tasks*> ClusterSpec::find(std::string_view job) const {
  const auto it = jobs_.find(job);
  if (it == jobs_.end()) {
    return base::not_found("No such job in cluster: '{}'; there are: {}", job,
                           jobs_.empty() ? "none" : fmt::format("{}", fmt::join(jobs(), ", ")));
  }
  return &it->second;
}

Result<bool> ClusterSpec::is_dense(std::string_view job) const {
  SR_ASSIGN_OR_RETURN(const Tasks* found, find(job));
  return is_dense_job(*found);
}

Result<Tasks> ClusterSpec::tasks(std::string_view job) const {
  SR_ASSIGN_OR_RETURN(const Tasks* found, find(job));
  return *found;
}

Result<int> ClusterSpec::num_tasks(std::string_view job) const {
  SR_ASSIGN_OR_RETURN(const Tasks* found, find(job));
  return static_cast<int>(found->size());
}

Result<std::vector<int>> ClusterSpec::task_indices(std::string_view job) const {
  SR_ASSIGN_OR_RETURN(const Tasks* found, find(job));
  std::vector<int> out;
  for (const auto& [index, address] : *found) out.push_back(index);
  return out;
}

Result<std::string> ClusterSpec::task_address(std::string_view job, int index) const {
  SR_ASSIGN_OR_RETURN(const Tasks* found, find(job));
  const auto it = found->find(index);
  if (it == found->end()) {
    SR_ASSIGN_OR_RETURN(const std::vector<int> indices, task_indices(job));
    return base::not_found("No task with index {} in job '{}'; there are: {}", index, job,
                           indices.empty() ? "none" : fmt::format("{}", fmt::join(indices, ", ")));
  }
  return it->second;
}

Result<std::vector<std::string>> ClusterSpec::addresses(std::string_view job) const {
  const auto it = jobs_.find(job);
  if (it == jobs_.end() || it->second.empty()) {
    return invalid_argument("the cluster has no tasks of job '{}'; give it a list of \"host:port\"",
                            job);
  }
  std::vector<std::string> out;
  for (const auto& [index, address] : it->second) {
    if (index != static_cast<int>(out.size())) {
      return invalid_argument("job '{}' has a task {} but no task {}", job, index, out.size());
    }
    out.push_back(address);
  }
  return out;
}

Result<std::vector<std::optional<std::string>>> ClusterSpec::job_tasks(std::string_view job) const {
  SR_ASSIGN_OR_RETURN(const Tasks* found, find(job));
  std::vector<std::optional<std::string>> out;
  if (!found->empty()) out.resize(found->rbegin()->first + 1);
  for (const auto& [index, address] : *found) out[index] = address;
  return out;
}

std::string ClusterSpec::to_string() const {
  std::vector<std::string> jobs;
  for (const auto& [job, tasks] : jobs_) {
    const bool is_list = is_dense_job(tasks);
    std::vector<std::string> parts;
    for (const auto& [index, address] : tasks) {
      parts.push_back(is_list ? python_text(address)
                              : fmt::format("{}: {}", index, python_text(address)));
    }
    const std::string inner = fmt::format("{}", fmt::join(parts, ", "));
    jobs.push_back(python_text(job) + ": " + (is_list ? "[" + inner + "]" : "{" + inner + "}"));
  }
  return fmt::format("ClusterSpec({{{}}})", fmt::join(jobs, ", "));
}

Result<std::string> rpc_layer_of(std::string_view tf_config) {
  if (tf_config.size() > kJsonBytesMax) {
    return invalid_argument("a TF_CONFIG of {} bytes; at most {} are read", tf_config.size(),
                            kJsonBytesMax);
  }
  const Json json = Json::parse(tf_config, nullptr, false);
  if (!json.is_object()) return invalid_argument("TF_CONFIG is no JSON object");
  const auto found = json.find("rpc_layer");
  if (found == json.end() || found->is_null()) return std::string();
  if (found->is_string()) return found->get<std::string>();
  if (!has_cluster(json)) return std::string();  // A cluster alone, with a job of that name.
  return invalid_argument("rpc_layer is {}, not a string", found->type_name());
}

}  // namespace sidereal::cluster
