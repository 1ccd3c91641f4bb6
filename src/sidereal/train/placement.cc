#include "sidereal/train/placement.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "sidereal/base/part_name.h"
#include "sidereal/base/strings.h"
#include "sidereal/train/memory_plan.h"

namespace sidereal::train {

namespace {

constexpr int64_t kPartsPerLaneMax = 1024;
/// Of all variables: what is calculated with their bytes fits.
constexpr int64_t kBytesMax = int64_t{1} << 60;
constexpr int kPsMax = 1 << 16;
/// Loads that differ by less than that part of their mean are left as they are: whole variables by
/// bytes, which are known, and tasks by what was measured.
constexpr double kEvenBytes = 0.01;
constexpr double kEvenLoads = 0.1;

int64_t bytes_of_part(const ModelVariable& variable, int64_t part, int64_t parts) {
  const int64_t bytes = bytes_of(variable);
  if (!variable.options.is_table || parts == 1) return bytes;
  const int64_t rows = variable.shape.dim(0);
  return bytes / rows * ((rows - part + parts - 1) / parts);
}

/// The placement while parts are moved from task to task.
class Spreader {
 public:
  Spreader(const std::vector<SpreadVariable>& variables, Placement from) : out_(std::move(from)) {
    load_.resize(static_cast<size_t>(out_.topology.ps));
    for (const SpreadVariable& variable : variables) variables_.push_back(&variable);
    std::ranges::sort(variables_, [](const auto* a, const auto* b) {
      const int64_t more = all_bytes(*b) - all_bytes(*a);
      return more != 0 ? more < 0 : a->name < b->name;
    });
    for (const auto* variable : variables_) {
      const std::vector<int>& tasks = out_.tasks[variable->name];
      for (size_t k = 0; k < tasks.size(); ++k) load_[at(tasks[k])] += variable->part_bytes[k];
    }
  }

  Placement spread_over(std::vector<int> ps) && {
    out_.ps = std::move(ps);
    for (const auto* variable : variables_) {
      if (variable->is_table) spread_table(*variable);
    }
    for (const auto* variable : variables_) {
      if (!variable->is_table) leave_others(*variable);
    }
    even_out();
    return std::move(out_);
  }

 private:
  static int64_t all_bytes(const SpreadVariable& variable) {
    return std::reduce(variable.part_bytes.begin(), variable.part_bytes.end());
  }
  [[nodiscard]] bool is_used(int task) const { return std::ranges::binary_search(out_.ps, task); }
  /// Of those that it is on, by bytes.
  [[nodiscard]] int least() const {
    return *std::ranges::min_element(out_.ps, {}, [&](int task) { return load_[at(task)]; });
  }
  [[nodiscard]] int most() const {
    return *std::ranges::max_element(out_.ps, {}, [&](int task) { return load_[at(task)]; });
  }
  static size_t at(int task) { return static_cast<size_t>(task); }
  [[nodiscard]] size_t lane_of(size_t part) const {
    return base::lanes_further(static_cast<int>(part), out_.topology.ps) %
           static_cast<size_t>(out_.topology.lanes);
  }

  void move(const SpreadVariable& variable, size_t part, int to) {
    int& task = out_.tasks[variable.name][part];
    const int64_t bytes = variable.part_bytes[part];
    load_[at(task)] -= bytes;
    load_[at(to)] += bytes;
    task = to;
  }

  /// As many parts on each task, or one more; those that have one more now keep it.
  void spread_table(const SpreadVariable& variable) {
    const std::vector<int>& tasks = out_.tasks[variable.name];
    const size_t lanes = static_cast<size_t>(out_.topology.lanes);
    std::vector<size_t> count(load_.size());
    std::vector<std::vector<size_t>> of_lane(load_.size(), std::vector<size_t>(lanes));
    for (size_t k = 0; k < tasks.size(); ++k) {
      ++count[at(tasks[k])];
      ++of_lane[at(tasks[k])][lane_of(k)];
    }
    const size_t least = tasks.size() / out_.ps.size();
    std::vector<int> order = out_.ps;
    std::ranges::sort(order, [&](int a, int b) {
      if (count[at(a)] != count[at(b)]) return count[at(a)] > count[at(b)];
      return load_[at(a)] != load_[at(b)] ? load_[at(a)] < load_[at(b)] : a < b;
    });
    std::vector<size_t> wanted(load_.size());
    for (size_t i = 0; i < order.size(); ++i) {
      wanted[at(order[i])] = least + (i < tasks.size() % out_.ps.size() ? 1 : 0);
    }
    for (const int to : out_.ps) {
      while (count[at(to)] < wanted[at(to)]) {
        // Lanes of both tasks have as many, too.
        size_t best = tasks.size();
        int64_t best_score = 0;
        for (size_t k = 0; k < tasks.size(); ++k) {
          const size_t from = at(tasks[k]);
          if (count[from] <= wanted[from]) continue;
          const size_t lane = lane_of(k);
          const int64_t score = static_cast<int64_t>(of_lane[from][lane]) -
                                static_cast<int64_t>(of_lane[at(to)][lane]);
          if (best < tasks.size() && score <= best_score) continue;
          best = k;
          best_score = score;
        }
        const size_t from = at(tasks[best]);
        --count[from];
        --of_lane[from][lane_of(best)];
        ++count[at(to)];
        ++of_lane[at(to)][lane_of(best)];
        move(variable, best, to);
      }
    }
  }

  void leave_others(const SpreadVariable& variable) {
    if (!is_used(out_.tasks[variable.name][0])) move(variable, 0, least());
  }

  /// Whole variables, the largest first, from the task that has most to the one that has least.
  void even_out() {
    const int64_t all = std::accumulate(load_.begin(), load_.end(), int64_t{0});
    const double small =
        kEvenBytes * static_cast<double>(all) / static_cast<double>(out_.ps.size());
    for (const auto* variable : variables_) {
      if (variable->is_table) continue;
      const int from = most();
      const int to = least();
      const int64_t apart = load_[at(from)] - load_[at(to)];
      if (static_cast<double>(apart) <= small) return;
      const int64_t bytes = variable->part_bytes[0];
      // A small one is not worth its way.
      const bool helps = bytes<apart&& static_cast<double>(bytes)> small;
      if (out_.tasks[variable->name][0] == from && helps) move(*variable, 0, to);
    }
  }

  Placement out_;
  std::vector<const SpreadVariable*> variables_;  // The largest first.
  std::vector<int64_t> load_;                     // Bytes, by task.
};

std::string task_text(int64_t task) { return fmt::format("/job:ps/task:{}", task); }

std::vector<int> first_tasks(int64_t count) {
  std::vector<int> out(static_cast<size_t>(count));
  std::iota(out.begin(), out.end(), 0);
  return out;
}

Status check_count(const Topology& topology, int64_t ps) {
  if (ps < 1) {
    return base::invalid_argument(
        "a model is on one parameter server at least, and not on {}: end its program to free all",
        ps);
  }
  if (ps <= topology.ps) return {};
  return base::invalid_argument(
      "the cluster has {} parameter server{}, and not {}: its tasks are those that the program was "
      "given at its start",
      topology.ps, topology.ps == 1 ? "" : "s", ps);
}

/// Parts and what they are taken to weigh, for moves by load.
struct Weighed {
  std::string variable;
  size_t part = 0;
  double weight = 0;
};

}  // namespace

Result<Placement> first_placement(const CompiledModel& model, const Topology& topology,
                                  const PlacementOptions& options) {
  if (topology.ps < 1) {
    return base::failed_precondition("the cluster has no ps task to hold the model's variables");
  }
  if (options.parts_per_lane < 1 || options.parts_per_lane > kPartsPerLaneMax) {
    return base::invalid_argument("parts_per_lane is {}; it must be from 1 to {}",
                                  options.parts_per_lane, kPartsPerLaneMax);
  }
  if (options.start_ps < 0 || options.start_ps > topology.ps) {
    return base::invalid_argument(
        "start_ps is {}, and the cluster has {} parameter server{}; 0 is all of them",
        options.start_ps, topology.ps, topology.ps == 1 ? "" : "s");
  }
  const int64_t ps = options.start_ps == 0 ? topology.ps : options.start_ps;
  Placement out{.topology = topology, .ps = first_tasks(ps), .tasks = {}};
  const auto tasks = static_cast<size_t>(ps);
  const auto lanes = static_cast<size_t>(topology.lanes);
  std::vector<const ModelVariable*> whole;
  for (const ModelVariable& variable : model.variables) {
    if (!variable.options.is_table) {
      whole.push_back(&variable);
      continue;
    }
    const int64_t parts = std::min(int64_t{topology.ps} * topology.lanes * options.parts_per_lane,
                                   variable.shape.dim(0));
    std::vector<int>& at = out.tasks[variable.name];
    std::vector<std::vector<size_t>> of_lane(tasks, std::vector<size_t>(lanes));
    std::vector<size_t> count(tasks);
    for (int64_t k = 0; k < parts; ++k) {
      const size_t lane = base::lanes_further(static_cast<int>(k), topology.ps) % lanes;
      // With all tasks of the cluster this is k % tasks.
      size_t best = 0;
      for (size_t task = 1; task < tasks; ++task) {
        const bool has_less = count[task] != count[best]
                                  ? count[task] < count[best]
                                  : of_lane[task][lane] < of_lane[best][lane];
        if (has_less) best = task;
      }
      ++count[best];
      ++of_lane[best][lane];
      at.push_back(static_cast<int>(best));
    }
  }
  std::ranges::sort(whole, [](const auto* a, const auto* b) {
    const int64_t more = b->shape.num_elements() - a->shape.num_elements();
    return more != 0 ? more < 0 : a->name < b->name;
  });
  std::vector<int64_t> load(tasks, 0);
  for (const ModelVariable* variable : whole) {
    const auto least = std::ranges::min_element(load);
    *least += variable->shape.num_elements();
    out.tasks[variable->name] = {static_cast<int>(least - load.begin())};
  }
  return out;
}

std::vector<SpreadVariable> to_spread(const CompiledModel& model, const Placement& placement) {
  std::vector<SpreadVariable> out;
  for (const ModelVariable& variable : model.variables) {
    const auto parts = static_cast<int64_t>(placement.tasks.at(variable.name).size());
    SpreadVariable& one = out.emplace_back();
    one.name = variable.name;
    one.is_table = variable.options.is_table;
    for (int64_t k = 0; k < parts; ++k) one.part_bytes.push_back(bytes_of_part(variable, k, parts));
  }
  return out;
}

Result<Spread> spread_of(int ps, std::vector<int> used,
                         const std::vector<HeldVariable>& variables) {
  if (ps < 1 || ps > kPsMax) {
    return base::invalid_argument("a cluster has {} parameter servers; it may have 1 to {}", ps,
                                  kPsMax);
  }
  const auto is_there = [ps](int task) { return task >= 0 && task < ps; };
  std::ranges::sort(used);
  used.erase(std::unique(used.begin(), used.end()), used.end());
  if (used.empty() || !std::ranges::all_of(used, is_there)) {
    return base::invalid_argument(
        "variables are on [{}], and the parameter servers of the cluster are 0 to {}",
        fmt::join(used, ", "), ps - 1);
  }
  std::map<std::string, const HeldVariable*> all;
  std::map<std::string, int64_t> parts;  // By table, so many of its first parts are there.
  int64_t bytes = 0;
  for (const HeldVariable& one : variables) {
    const bool can_be = one.bytes >= 0 && one.bytes <= kBytesMax - bytes && is_there(one.task);
    if (!can_be || !all.emplace(one.name, &one).second) {
      return base::invalid_argument("'{}', of {} bytes on {}, is no variable, or is there twice",
                                    one.name, one.bytes, task_text(one.task));
    }
    bytes += one.bytes;
  }
  for (const auto& [name, one] : all) {
    const std::string table(base::split_part(name).first);
    if (table == name || parts.contains(table)) continue;
    int64_t& count = parts[table];
    while (all.contains(base::part_name(table, count))) ++count;
  }
  Spread out;
  out.placement = {.topology = {.ps = ps}, .ps = std::move(used), .tasks = {}};
  const auto add = [&out](const std::string& name, bool is_table,
                          const std::vector<const HeldVariable*>& its) {
    SpreadVariable& to = out.variables.emplace_back();
    to.name = name;
    to.is_table = is_table;
    for (const HeldVariable* const one : its) {
      to.part_bytes.push_back(one->bytes);
      out.placement.tasks[name].push_back(one->task);
    }
  };
  for (const auto& [table, count] : parts) {
    // One variable may be called as a table is, and is not it.
    if (all.contains(table)) continue;
    std::vector<const HeldVariable*> its;
    for (int64_t k = 0; k < count; ++k) {
      const auto part = all.find(base::part_name(table, k));
      its.push_back(part->second);
      all.erase(part);
    }
    if (!its.empty()) add(table, true, its);
  }
  for (const auto& [name, one] : all) add(name, false, {one});
  return out;
}

Result<Placement> scaled(const std::vector<SpreadVariable>& variables, const Placement& now,
                         int64_t ps) {
  SR_RETURN_IF_ERROR(check_count(now.topology, ps));
  std::vector<int> wanted = first_tasks(ps);
  if (wanted == now.ps) return now;
  return Spreader(variables, now).spread_over(std::move(wanted));
}

Result<Placement> drained(const std::vector<SpreadVariable>& variables, const Placement& now,
                          int64_t ps) {
  if (ps < 0 || ps >= now.topology.ps) {
    return base::invalid_argument("the cluster has no {}: its parameter servers are 0 to {}",
                                  task_text(ps), now.topology.ps - 1);
  }
  std::vector<int> wanted = now.ps;
  const auto found = std::ranges::find(wanted, static_cast<int>(ps));
  if (found == wanted.end()) {
    return base::failed_precondition("the model is not on {}, which may be stopped", task_text(ps));
  }
  if (wanted.size() == 1) {
    return base::failed_precondition(
        "{} is the only parameter server that the model is on: scale to more of them first",
        task_text(ps));
  }
  if (ps == 0) {
    return base::failed_precondition(
        "{} grants the leases of jobs and keeps the count of steps, so that a model stays on it: "
        "drain another one",
        task_text(ps));
  }
  wanted.erase(found);
  return Spreader(variables, now).spread_over(std::move(wanted));
}

Result<Placement> rebalanced(const std::vector<SpreadVariable>& variables, const Placement& now,
                             const std::vector<double>& loads) {
  const auto load_at = [&](int task) {
    const auto at = static_cast<size_t>(task);
    return at < loads.size() && std::isfinite(loads[at]) ? std::max(loads[at], 0.0) : 0.0;
  };
  const bool is_measured = std::ranges::any_of(now.ps, [&](int t) { return load_at(t) > 0; });
  if (!is_measured) return Spreader(variables, now).spread_over(now.ps);
  std::map<int, double> load;
  std::map<int, double> bytes;
  std::map<int, std::vector<Weighed>> parts;
  double sum = 0;
  for (const int task : now.ps) sum += load[task] = load_at(task);
  for (const SpreadVariable& variable : variables) {
    const std::vector<int>& tasks = now.tasks.at(variable.name);
    for (size_t k = 0; k < tasks.size(); ++k) {
      const auto size = static_cast<double>(variable.part_bytes[k]);
      bytes[tasks[k]] += size;
      parts[tasks[k]].push_back({variable.name, k, size});
    }
  }
  for (auto& [task, all] : parts) {
    for (Weighed& one : all) one.weight *= load[task] / std::max(bytes[task], 1.0);
  }
  Placement out = now;
  const double small = kEvenLoads * sum / static_cast<double>(now.ps.size());
  const auto by_load = [](const auto& a, const auto& b) { return a.second < b.second; };
  while (true) {
    const int from = std::ranges::max_element(load, by_load)->first;
    const int to = std::ranges::min_element(load, by_load)->first;
    const double apart = load[from] - load[to];
    // The one after which both are closest. Each move makes the sum of squares less.
    const auto best = std::ranges::min_element(
        parts[from], {}, [&](const Weighed& one) { return std::abs(apart / 2 - one.weight); });
    if (apart <= small || best == parts[from].end()) break;
    if (best->weight >= apart || best->weight <= small / 100) break;
    out.tasks[best->variable][best->part] = to;
    load[from] -= best->weight;
    load[to] += best->weight;
    parts[to].push_back(*best);
    parts[from].erase(best);
  }
  return out;
}

std::string to_string(const MoveSummary& summary) {
  const auto plural = [](size_t count) { return count == 1 ? "" : "s"; };
  if (summary.parts == 0 && summary.ps == summary.ps_before) {
    return fmt::format("nothing is to be moved: the model is on {} parameter server{}, evenly",
                       summary.ps, plural(summary.ps));
  }
  std::string where = fmt::format("from {} to {} parameter server{}", summary.ps_before, summary.ps,
                                  plural(summary.ps));
  if (summary.ps == summary.ps_before) {
    where = fmt::format("among {} parameter server{}", summary.ps, plural(summary.ps));
  }
  return fmt::format("moved {} part{}, {}, {} in {:.1f} s; training stood still for {:.2f} s",
                     summary.parts, plural(static_cast<size_t>(summary.parts)),
                     base::human_bytes(static_cast<double>(summary.bytes)), where, summary.lasted_s,
                     summary.paused_s);
}

std::vector<PartMove> moves_between(const std::vector<SpreadVariable>& variables,
                                    const Placement& now, const Placement& next) {
  std::vector<PartMove> out;
  for (const SpreadVariable& variable : variables) {
    const std::vector<int>& from = now.tasks.at(variable.name);
    const std::vector<int>& to = next.tasks.at(variable.name);
    for (size_t k = 0; k < from.size(); ++k) {
      if (from[k] == to[k]) continue;
      const auto part = static_cast<int64_t>(k);
      out.push_back(
          {.variable = variable.name,
           .name = variable.is_table ? base::part_name(variable.name, part) : variable.name,
           .from = from[k],
           .to = to[k],
           .bytes = variable.part_bytes[k]});
    }
  }
  return out;
}

}  // namespace sidereal::train
