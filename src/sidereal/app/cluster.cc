#include "sidereal/app/cluster.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "sidereal/base/strings.h"
#include "sidereal/security/cluster_key.h"
#include "sidereal/service/voting.h"
#include "sidereal/sys/address.h"

namespace sidereal::app {
namespace {

class RemoteCluster final : public Cluster {
 public:
  RemoteCluster(cluster::ClusterSpec spec, security::SecurityOptions security)
      : spec_(std::move(spec)), security_(std::move(security)) {}
  ~RemoteCluster() override { security::wipe(&security_.secret); }
  [[nodiscard]] const cluster::ClusterSpec& spec() const override { return spec_; }
  [[nodiscard]] const security::SecurityOptions& security() const override { return security_; }
  Status check_alive() override { return {}; }
  void give_up(const std::string& /*task*/) override {}
  void take_back(const std::string& /*task*/) override {}
  // Whoever started them does, or nobody.
  [[nodiscard]] bool restarts() const override { return true; }
  Status stop() override { return {}; }

 private:
  cluster::ClusterSpec spec_;
  security::SecurityOptions security_;
};

}  // namespace

Cluster::~Cluster() = default;

service::SessionOptions Cluster::session_options() const {
  service::SessionOptions out;
  out.cluster = spec();
  out.security = security();
  return out;
}

std::string Cluster::target(const std::string& job, int index) const {
  const Result<std::string> address = spec().task_address(job, index);
  return address.ok() ? "grpc://" + *address : "";
}

std::string task_name(const std::string& job, int index) {
  return fmt::format("/job:{}/task:{}", job, index);
}

Result<std::unique_ptr<Cluster>> remote_cluster(cluster::ClusterSpec spec,
                                                const security::SecurityOptions& security) {
  static const std::vector<std::string> kJobs = {"ps", "worker", "chief", "evaluator",
                                                 service::kVoterJob};
  for (const std::string& job : spec.jobs()) {
    // A misspelt job would otherwise be a job that is not there.
    if (std::ranges::find(kJobs, job) == kJobs.end()) {
      return base::invalid_argument("job '{}' of the cluster is none of {}", job,
                                    base::join(kJobs, ", "));
    }
  }
  for (const char* job : {"ps", "worker"}) {
    SR_ASSIGN_OR_RETURN(const std::vector<std::string> addresses, spec.addresses(job));
    for (const std::string& address : addresses) {
      if (const auto parsed = sys::Address::parse(address); !parsed.ok()) {
        return base::invalid_argument(
            "'{}' is not the address of a {} task; write \"host:port\": {}", address, job,
            base::message_of(parsed.status()));
      }
    }
  }
  SR_RETURN_IF_ERROR(security::Credentials::create(security).status());
  return std::make_unique<RemoteCluster>(std::move(spec), security);
}

}  // namespace sidereal::app
