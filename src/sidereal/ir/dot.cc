#include "sidereal/ir/dot.h"

#include <fmt/format.h>

#include <array>
#include <map>
#include <set>

#include "sidereal/ir/function.h"

namespace sidereal::ir {
namespace {

/// Light enough for black text.
constexpr std::array<std::string_view, 10> kColours = {"#dbe9f6", "#fde2c4", "#d5f0d3", "#f8d3d6",
                                                       "#e5dcf3", "#fff3b8", "#cdeeee", "#f6d5ec",
                                                       "#e6e2d3", "#d9dde8"};
constexpr std::string_view kConstant = "#f2f2f2";

std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (c == '\n') {
      out += "\\n";
    } else {
      out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    }
  }
  return out + '"';
}

/// As the legend names where a node runs.
std::string device_of(const Node& node) { return node.device.empty() ? "anywhere" : node.device; }

/// What an attribute names that says more of a node than its op.
std::string detail_of(const Node& node) {
  for (const char* attr : {"shared_name", "function", "body"}) {
    const auto* value = find_attr<std::string>(node.attrs, attr);
    if (value != nullptr) return fmt::format("{} {}", attr, *value);
  }
  return "";
}

class Writer {
 public:
  explicit Writer(const DotOptions& options) : options_(options) {}

  std::string write(const Graph& graph) {
    collect(graph);
    out_ =
        "digraph sidereal {\n  rankdir=TB; nodesep=0.25; ranksep=0.45;\n"
        "  fontname=\"Helvetica\"; labelloc=t;\n"
        "  node [shape=box, style=\"filled,rounded\", fontname=\"Helvetica\", fontsize=11, "
        "margin=\"0.12,0.06\"];\n"
        "  edge [fontname=\"Helvetica\", fontsize=9, color=\"#606060\", arrowsize=0.6];\n";
    if (!options_.title.empty()) out_ += fmt::format("  label={};\n", quoted(options_.title));
    nodes(graph, "g", "  ");
    if (options_.functions) functions(graph);
    legend();
    return out_ + "}\n";
  }

 private:
  /// Devices get colours in the order of their names, behind what may run anywhere.
  void collect(const Graph& graph) {
    std::set<std::string> devices;
    for (const Node& node : graph.nodes()) devices.insert(device_of(node));
    colours_[device_of({})] = 0;
    for (const std::string& device : devices) colours_.emplace(device, colours_.size());
    used_ = std::move(devices);
  }

  [[nodiscard]] std::string_view colour_of(const Node& node) const {
    if (node.op == "Const") return kConstant;
    const auto it = colours_.find(device_of(node));
    return kColours[it == colours_.end() ? 0 : it->second % kColours.size()];
  }

  [[nodiscard]] bool is_drawn(const Node& node) const {
    return options_.constants || node.op != "Const";
  }

  void nodes(const Graph& graph, const std::string& prefix, const std::string& indent) {
    for (const Node& node : graph.nodes()) {
      if (!is_drawn(node)) continue;
      std::string label = node.op;
      if (node.op == "Const") {
        label = to_string(node.outputs[0]);
      } else {
        if (node.name != node.op) label += "\n" + node.name;
        if (const std::string detail = detail_of(node); !detail.empty()) label += "\n" + detail;
      }
      const bool source = node.op == "Placeholder" || node.op == "Arg";
      out_ += fmt::format("{}{}{} [label={}, fillcolor=\"{}\"{}];\n", indent, prefix, node.id.value,
                          quoted(label), colour_of(node),
                          source ? ", shape=ellipse, style=filled" : "");
      edges(graph, node, prefix, indent);
    }
  }

  void edges(const Graph& graph, const Node& node, const std::string& prefix,
             const std::string& indent) {
    for (const Output& input : node.inputs) {
      if (!is_drawn(graph.node(input.node))) continue;
      const bool constant = graph.node(input.node).op == "Const";
      const std::string label = constant ? "" : to_string(graph.spec(input));
      out_ += fmt::format("{}{}{} -> {}{} [label={}];\n", indent, prefix, input.node.value, prefix,
                          node.id.value, quoted(label));
    }
    for (const NodeId control : node.control_inputs) {
      if (!is_drawn(graph.node(control))) continue;
      out_ += fmt::format("{}{}{} -> {}{} [style=dashed];\n", indent, prefix, control.value, prefix,
                          node.id.value);
    }
  }

  void functions(const Graph& graph) {
    for (const NamedFunction& named : graph.functions()) {
      const auto [it, added] = numbers_.emplace(named.function.get(), numbers_.size());
      if (!added) continue;
      const std::string prefix = fmt::format("f{}n", it->second);
      out_ += fmt::format(
          "  subgraph cluster_f{} {{\n    label={}; style=rounded; color=\"#909090\";\n",
          it->second, quoted("function " + named.name));
      nodes(named.function->body(), prefix, "    ");
      const std::vector<Output>& outputs = named.function->outputs();
      for (size_t i = 0; i < outputs.size(); ++i) {
        out_ += fmt::format(
            "    {}out{} [label=\"result {}\", shape=ellipse, style=filled, fillcolor=white];\n",
            prefix, i, i);
        if (!is_drawn(named.function->body().node(outputs[i].node))) continue;
        out_ += fmt::format("    {}{} -> {}out{} [label={}];\n", prefix, outputs[i].node.value,
                            prefix, i, quoted(to_string(named.function->output(i))));
      }
      out_ += "  }\n";
      functions(named.function->body());
    }
  }

  void legend() {
    if (used_.size() < 2) return;
    out_ +=
        "  subgraph cluster_legend {\n    label=\"devices\"; style=rounded; "
        "color=\"#909090\";\n";
    for (const auto& [device, number] : colours_) {
      if (!used_.contains(device)) continue;
      out_ += fmt::format("    legend{} [label={}, fillcolor=\"{}\"];\n", number, quoted(device),
                          kColours[number % kColours.size()]);
    }
    out_ += "  }\n";
  }

  const DotOptions& options_;
  std::string out_;
  std::map<std::string, size_t> colours_;
  std::set<std::string> used_;
  std::map<const Function*, size_t> numbers_;
};

size_t count_nodes(const Graph& graph, std::set<const Function*>* seen) {
  size_t count = graph.size();
  for (const NamedFunction& named : graph.functions()) {
    if (seen->insert(named.function.get()).second) {
      count += count_nodes(named.function->body(), seen);
    }
  }
  return count;
}

}  // namespace

Result<std::string> to_dot(const Graph& graph, const DotOptions& options) {
  std::set<const Function*> seen;
  const size_t count = count_nodes(graph, &seen);
  if (count > options.nodes_max) {
    return base::invalid_argument(
        "the graph has {} nodes; a picture of more than {} would be of no use: print it as text",
        count, options.nodes_max);
  }
  return Writer(options).write(graph);
}

}  // namespace sidereal::ir
