#include "sidereal/service/variable_moves.h"

#include <map>
#include <set>
#include <string_view>
#include <thread>
#include <utility>

#include "sidereal/cluster/task_name.h"

namespace sidereal::service {

namespace {

/// Names by the task that they go to and the one that they are on.
using Names = std::map<int, std::map<int, std::vector<std::string>>>;

Result<Names> names_of(const std::vector<VariableRoute>& routes) {
  Names out;
  std::set<std::string_view> all;
  for (const VariableRoute& route : routes) {
    if (route.from == route.to) {
      return base::invalid_argument("'{}' is to be moved to {}, where it is", route.name,
                                    cluster::task_name("ps", route.to));
    }
    if (!all.insert(route.name).second) {
      return base::invalid_argument("'{}' is to be moved twice", route.name);
    }
    out[route.to][route.from].push_back(route.name);
  }
  if (out.empty()) return base::invalid_argument("no variable is to be moved");
  return out;
}

}  // namespace

Result<std::unique_ptr<VariableMoves>> VariableMoves::begin(
    const cluster::ClusterSpec& cluster, const std::string& state_group,
    const std::vector<VariableRoute>& routes,
    const std::shared_ptr<const security::Credentials>& credentials) {
  SR_ASSIGN_OR_RETURN(const Names names, names_of(routes));
  const auto address = [&cluster](int task) -> Result<FollowedAddress> {
    SR_ASSIGN_OR_RETURN(const std::string at, cluster.task_address("ps", task));
    return FollowedAddress{.task = cluster::task_name("ps", task), .address = at};
  };
  std::vector<std::unique_ptr<VariableMove>> moves;
  for (const auto& [to, sources] : names) {
    SR_ASSIGN_OR_RETURN(const FollowedAddress target, address(to));
    std::vector<MovedVariables> from;
    for (const auto& [task, its] : sources) {
      SR_ASSIGN_OR_RETURN(const FollowedAddress source, address(task));
      from.push_back({.from = source, .names = its});
    }
    SR_ASSIGN_OR_RETURN(moves.emplace_back(),
                        VariableMove::begin(target, state_group, from, credentials));
  }
  return std::unique_ptr<VariableMoves>(new VariableMoves(std::move(moves)));
}

Result<MoveProgress> VariableMoves::progress() {
  SR_RETURN_IF_ERROR(status_);
  MoveProgress all{.bytes = 0, .is_current = true};
  for (const std::unique_ptr<VariableMove>& move : moves_) {
    SR_ASSIGN_OR_RETURN(const MoveProgress one, move->progress());
    all.bytes += one.bytes;
    all.is_current = all.is_current && one.is_current;
  }
  return all;
}

Status VariableMoves::take(std::chrono::milliseconds limit) {
  SR_RETURN_IF_ERROR(status_);
  std::vector<Status> taken(moves_.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < moves_.size(); ++i) {
    threads.emplace_back([this, &taken, i, limit] { taken[i] = moves_[i]->take(limit); });
  }
  for (std::thread& thread : threads) thread.join();
  for (Status& one : taken) {
    if (!one.ok()) return give_up(std::move(one));
  }
  is_taken_ = true;
  return {};
}

Status VariableMoves::commit() {
  SR_RETURN_IF_ERROR(status_);
  if (!is_taken_) return base::failed_precondition("what was not taken is committed");
  for (const std::unique_ptr<VariableMove>& move : moves_) {
    Status kept = move->commit();
    if (!kept.ok()) return give_up(std::move(kept));
  }
  return {};
}

/// Tasks forget what they have not kept.
Status VariableMoves::give_up(Status why) {
  moves_.clear();
  status_ = std::move(why);
  return status_;
}

}  // namespace sidereal::service
