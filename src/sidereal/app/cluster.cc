#include "sidereal/app/cluster.h"

#include <nlohmann/json.hpp>

namespace sidereal::app {
namespace {

using nlohmann::json;

Status read_job(const json& cluster, const char* job, std::vector<std::string>* out) {
  const auto it = cluster.find(job);
  if (it == cluster.end() || !it->is_array() || it->empty()) {
    return base::invalid_argument(
        "the cluster has no tasks of job '{}'; give it a list of "
        "\"host:port\"",
        job);
  }
  for (const json& address : *it) {
    if (!address.is_string() || address.get<std::string>().find(':') == std::string::npos) {
      return base::invalid_argument("{} is not the address of a {} task; write \"host:port\"",
                                    address.dump(), job);
    }
    out->push_back(address.get<std::string>());
  }
  return {};
}

class RemoteCluster final : public Cluster {
 public:
  explicit RemoteCluster(ClusterSpec spec) : spec_(std::move(spec)) {}
  [[nodiscard]] const ClusterSpec& spec() const override { return spec_; }
  Status check_alive() override { return {}; }
  Status stop() override { return {}; }

 private:
  ClusterSpec spec_;
};

}  // namespace

Cluster::~Cluster() = default;

Result<ClusterSpec> ClusterSpec::from_json(const std::string& text) {
  json value = json::parse(text, nullptr, false);
  if (value.is_discarded() || !value.is_object()) {
    return base::invalid_argument(
        "the cluster is not a JSON object like "
        "{{\"ps\": [\"host:port\"], \"worker\": [\"host:port\"]}}");
  }
  if (value.contains("cluster") && value["cluster"].is_object()) {
    const json inner = value["cluster"];
    value = inner;
  }
  for (const auto& [job, tasks] : value.items()) {
    if (job != "ps" && job != "worker") {
      return base::invalid_argument("job '{}' of the cluster is neither ps nor worker", job);
    }
  }
  ClusterSpec spec;
  SR_RETURN_IF_ERROR(read_job(value, "ps", &spec.ps));
  SR_RETURN_IF_ERROR(read_job(value, "worker", &spec.worker));
  return spec;
}

std::string ClusterSpec::to_json() const { return json{{"ps", ps}, {"worker", worker}}.dump(); }

std::string task_name(const std::string& job, int index) {
  return fmt::format("/job:{}/task:{}", job, index);
}

std::unique_ptr<Cluster> remote_cluster(ClusterSpec spec) {
  return std::make_unique<RemoteCluster>(std::move(spec));
}

}  // namespace sidereal::app
