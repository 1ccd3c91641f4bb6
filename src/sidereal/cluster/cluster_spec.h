#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sidereal/base/status.h"

/// Who is in a cluster.
namespace sidereal::cluster {

/// The jobs of a cluster and the network addresses of their tasks. A job is dense when its indices
/// are 0, 1, ..., n-1, sparse otherwise; a job may have no tasks. Addresses are kept as they are
/// given: who connects reads them. Jobs are sorted by name, tasks by index, so that equal clusters
/// are equal values. Value type.
/// Source: tf.train.ClusterSpec.
class ClusterSpec {
 public:
  /// Task index to address.
  using Tasks = std::map<int, std::string>;

  ClusterSpec() = default;

  /// Reads {"JOB": ["ADDRESS", ...], "JOB": {"INDEX": "ADDRESS"}}. A text that has such an object
  /// under "cluster", as TF_CONFIG does, stands for that object.
  /// Errors: kInvalidArgument naming what is not as it should be, and where.
  static Result<ClusterSpec> from_json(std::string_view text);
  /// Such text, jobs sorted; dense jobs are lists. from_json() gives the same cluster back.
  [[nodiscard]] std::string to_json() const;

  /// Adds a job. Errors: kInvalidArgument for a name that is not [A-Za-z][A-Za-z0-9_]*, or an index
  /// below 0; kAlreadyExists for a job that is there.
  Status add_job(const std::string& name, Tasks tasks);
  /// Adds a dense job.
  Status add_job(const std::string& name, const std::vector<std::string>& addresses);

  /// No jobs at all.
  [[nodiscard]] bool empty() const { return jobs_.empty(); }
  /// Names, sorted.
  [[nodiscard]] std::vector<std::string> jobs() const;
  [[nodiscard]] bool has_job(std::string_view job) const { return jobs_.contains(job); }
  /// True for indices 0, 1, ..., n-1 with n > 0. Errors: as those below.
  [[nodiscard]] Result<bool> is_dense(std::string_view job) const;

  /// Errors of the following: kNotFound naming the job or task that is not there, and those that
  /// are.
  [[nodiscard]] Result<Tasks> tasks(std::string_view job) const;
  /// Tasks that have an address.
  [[nodiscard]] Result<int> num_tasks(std::string_view job) const;
  [[nodiscard]] Result<std::vector<int>> task_indices(std::string_view job) const;
  [[nodiscard]] Result<std::string> task_address(std::string_view job, int index) const;
  /// The addresses of a dense job, by index. kInvalidArgument where there are no tasks or holes.
  [[nodiscard]] Result<std::vector<std::string>> addresses(std::string_view job) const;
  /// Addresses by index, up to the highest; none where there is no task.
  [[nodiscard]] Result<std::vector<std::optional<std::string>>> job_tasks(
      std::string_view job) const;

  /// "ClusterSpec({'ps': ['ps0:2222'], 'worker': {3: 'w3:2222'}})", as Python prints it.
  [[nodiscard]] std::string to_string() const;

  friend bool operator==(const ClusterSpec&, const ClusterSpec&) = default;

 private:
  [[nodiscard]] Result<const Tasks*> find(std::string_view job) const;

  std::map<std::string, Tasks, std::less<>> jobs_;
};

/// What a TF_CONFIG says under "rpc_layer"; "" where it has none. Errors: kInvalidArgument for a
/// text that is no JSON object, or an rpc_layer that is no string.
Result<std::string> rpc_layer_of(std::string_view tf_config);

}  // namespace sidereal::cluster
