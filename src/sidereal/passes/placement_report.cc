#include "sidereal/passes/placement_report.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "sidereal/ir/device_spec.h"
#include "sidereal/ir/function.h"

namespace sidereal::passes {
namespace {

using TaskKey = std::tuple<std::string, int, int>;  // Job, replica, task.

/// Collects what a placed graph and its bodies say. Thread: core-local.
class Collector {
 public:
  void add(const ir::Graph& graph) {
    for (const ir::Node& node : graph.nodes()) {
      const auto device = ir::DeviceSpec::parse(node.device);
      if (!device.ok() || !device->is_full()) continue;
      TaskLoad& load = loads_[{*device->job, *device->replica, *device->task}];
      ++load.nodes;
      if (node.op == "Variable") add_variable(node, &load);
    }
    for (const ir::NamedFunction& held : graph.functions()) {
      if (seen_.insert(held.function.get()).second) add(held.function->body());
    }
  }

  PlacementReport finish() {
    std::map<std::string, std::pair<int64_t, int64_t>> jobs;  // Bytes, tasks.
    for (const auto& [key, load] : loads_) {
      jobs[std::get<0>(key)].first += load.bytes;
      ++jobs[std::get<0>(key)].second;
    }
    double total = 0;
    double count = 0;
    int64_t most = 0;
    for (auto& [key, load] : loads_) {
      const auto& [bytes, tasks] = jobs[std::get<0>(key)];
      load.task = fmt::format("/job:{}/replica:{}/task:{}", std::get<0>(key), std::get<1>(key),
                              std::get<2>(key));
      out_.tasks.push_back(load);
      if (bytes == 0) continue;
      total += static_cast<double>(load.bytes);
      count += 1;
      most = std::max(most, load.bytes);
    }
    if (total > 0) out_.imbalance = static_cast<double>(most) / (total / count);
    return std::move(out_);
  }

 private:
  void add_variable(const ir::Node& node, TaskLoad* load) {
    PlacedVariable made;
    made.name = ir::attr_or<std::string>(node.attrs, "shared_name", "");
    if (made.name.empty()) made.name = node.name;
    made.device = node.device;
    const auto container = ir::attr_or<std::string>(node.attrs, "container", "");
    if (!known_.insert({made.device, container, made.name}).second) return;
    made.spec = {ir::attr_or(node.attrs, "dtype", ir::DType::kInvalid),
                 ir::attr_or(node.attrs, "shape", ir::Shape::unknown_rank())};
    if (made.spec.shape.is_fully_defined() && made.spec.dtype != ir::DType::kInvalid) {
      made.bytes =
          made.spec.shape.num_elements() * static_cast<int64_t>(tensor::size_of(made.spec.dtype));
    }
    ++load->variables;
    load->bytes += made.bytes;
    out_.variables.push_back(std::move(made));
  }

  std::map<TaskKey, TaskLoad> loads_;
  std::set<std::tuple<std::string, std::string, std::string>> known_;
  std::set<const ir::Function*> seen_;
  PlacementReport out_;
};

/// Columns as wide as their widest cell; the first two to the left, numbers to the right.
std::string table(const std::vector<std::vector<std::string>>& rows, size_t left) {
  std::vector<size_t> width;
  for (const auto& row : rows) {
    width.resize(std::max(width.size(), row.size()));
    for (size_t c = 0; c < row.size(); ++c) width[c] = std::max(width[c], row[c].size());
  }
  std::string out;
  for (const auto& row : rows) {
    std::string line;
    for (size_t c = 0; c < row.size(); ++c) {
      if (c > 0) line += "  ";
      line += c < left ? fmt::format("{:<{}}", row[c], width[c])
                       : fmt::format("{:>{}}", row[c], width[c]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  }
  return out;
}

}  // namespace

PlacementReport placement_report(const ir::Graph& graph) {
  Collector collector;
  collector.add(graph);
  return collector.finish();
}

std::string to_text(const PlacementReport& report) {
  std::vector<std::vector<std::string>> rows = {{"task", "variables", "bytes", "nodes"}};
  for (const TaskLoad& load : report.tasks) {
    rows.push_back({load.task, fmt::format("{}", load.variables), fmt::format("{}", load.bytes),
                    fmt::format("{}", load.nodes)});
  }
  std::string out = table(rows, 1);
  if (report.variables.empty()) return out;
  out += fmt::format("imbalance (most bytes of a task / mean): {:.2f}\n\n", report.imbalance);
  rows = {{"variable", "device", "value", "bytes"}};
  for (const PlacedVariable& variable : report.variables) {
    rows.push_back({variable.name, variable.device, ir::to_string(variable.spec),
                    fmt::format("{}", variable.bytes)});
  }
  return out + table(rows, 3);
}

}  // namespace sidereal::passes
