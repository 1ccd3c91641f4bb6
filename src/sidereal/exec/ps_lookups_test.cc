#include <gtest/gtest.h>

#include "sidereal/autodiff/autodiff.h"
#include "sidereal/exec/testing/cuts.h"
#include "sidereal/ops/ops.h"
#include "sidereal/passes/pipeline.h"

// Steps with tables on other devices that have one unique-and-route, and whose rows go straight to
// where they are joined, beside those where each table is on its own: the same calls, values and
// updates, bit for bit.
namespace sidereal::exec {
namespace {

using ir::Builder;
using ir::Output;
using tensor::DType;
using tensor::Shape;
using tensor::Tensor;
using Ints = std::vector<int64_t>;
using Mode = partition::PullPushOptions::Mode;

constexpr double kRate = 0.25;

/// The device that drives the steps.
const std::string& driver() { return four_devices()[2]; }

/// What asks for no device is the driver's.
void place_rest(ir::Graph* graph) {
  for (size_t i = 0; i < graph->size(); ++i) {
    ir::Node& node = graph->mutable_node(ir::NodeId(static_cast<int32_t>(i)));
    if (node.device.empty()) node.device = driver();
  }
}

/// Lookups in some tables by ids of their own, ids they share, and ids that other lookups give; and
/// updates of the tables, by ids of lookups and by others. Tables are whole, or in parts on one or
/// two devices.
class RandomTables {
 public:
  explicit RandomTables(uint32_t seed)
      : dice(seed), lanes_(dice.pick<Ints>({{1}, {2}, {1, 1}, {3, 2}})) {
    for (int64_t i = dice.number(1, 4); i > 0; --i) add_table();
    for (int64_t i = dice.number(1, 3); i > 0; --i) ids_.push_back(fed());
    for (int64_t i = dice.number(1, 8); i > 0; --i) {
      const Output ids = dice.chance(15) && !rows_.empty() ? derived() : dice.pick(ids_);
      if (dice.chance(40)) ids_.push_back(fed());
      const auto table =
          static_cast<size_t>(dice.number(0, static_cast<int64_t>(tables_.size()) - 1));
      rows_.push_back(lookup(tables_[table], ids));
      looked_up_.emplace_back(table, ids);
    }
    for (const Output& rows : rows_) {
      if (dice.chance(60)) fetches.push_back(rows);
    }
    join();
    if (fetches.empty()) fetches.push_back(rows_.back());
    for (size_t i = 0; i < rows_.size(); ++i) {
      if (dice.chance(50)) continue;
      const auto& [table, ids] = looked_up_[i];
      update(tables_[table], ids, ops::tanh(b, rows_[i]));
    }
    EXPECT_TRUE(b.status().ok()) << b.status();
    place_rest(&graph);
  }

  /// Bytes of all fetches and, afterwards, of all tables.
  std::vector<std::string> run(bool fuse, Mode mode = Mode::kLayers) {
    const auto step = passes::run_passes(graph, fetches, targets, test_registry(), {.fuse = fuse});
    EXPECT_TRUE(step.ok()) << step.status();
    if (!step.ok()) return {};
    DrivenCalls driven(&dice, mode);
    for (const auto& [device, values] : variables) set_variables(&driven.manager(device), values);
    const Status made = driven.make(step->graph, driver(), step->fetches, step->targets);
    EXPECT_TRUE(made.ok()) << made;
    if (!made.ok()) return {};
    calls = driven.parts().remotes.size();
    ops.clear();
    for (const ir::Node& node : driven.parts().worker.nodes()) ops.insert(node.op);
    std::vector<std::string> out;
    for (uint64_t id = 1; id <= 2; ++id) {
      const auto got = driven.run(feeds, id);
      EXPECT_TRUE(got.ok()) << got.status();
      if (!got.ok()) return {};
      for (const Tensor& t : *got) out.push_back(bytes_of(t));
      // Pushes that were reported done before they were.
      const Status ended = driven.make_way();
      EXPECT_TRUE(ended.ok()) << ended;
    }
    for (const auto& [device, values] : variables) {
      for (const auto& [name, value] : values) {
        out.push_back(bytes_of(variable_of(driven.manager(device), name)));
      }
    }
    return out;
  }

  Dice dice;
  ir::Graph graph;
  Builder b{&graph, &test_registry()};
  reference::Values feeds;
  std::map<std::string, reference::Values> variables;  ///< By device.
  std::vector<Output> fetches;
  std::vector<ir::NodeId> targets;
  std::set<std::string> ops;
  size_t calls = 0;

 private:
  static std::string bytes_of(const Tensor& t) {
    return t.to_string() + std::string(reinterpret_cast<const char*>(t.raw()), t.nbytes());
  }

  struct Table {
    int64_t rows = 0;
    int64_t dim = 0;
    std::vector<Output> parts;  ///< Handles: all of task 0, then all of task 1.
  };

  static ir::AttrMap spec_of(const Shape& shape) {
    return {{"dtype", DType::kFloat32}, {"shape", shape}};
  }

  /// Adds a node on the device of `handle`.
  ir::NodeId add_at(Output handle, const char* op, const std::vector<Output>& inputs,
                    const ir::AttrMap& attrs = {}) {
    const ir::NodeId id = b.add_node(op, inputs, attrs);
    EXPECT_TRUE(id.valid()) << b.status();
    if (id.valid()) graph.mutable_node(id).device = graph.node(handle.node).device;
    return id;
  }

  void add_table(int64_t dim = 0) {
    Table made{.rows = dice.pick<int64_t>({kRows, kRows, kRows + 3}),
               .dim = dim > 0 ? dim : dice.number(1, 5),
               .parts = {}};
    const auto tasks = static_cast<int64_t>(lanes_.size());
    for (int64_t task = 0; task < tasks; ++task) {
      const int64_t rows = made.rows / tasks + (task < made.rows % tasks ? 1 : 0);
      const int64_t lanes = lanes_[static_cast<size_t>(task)];
      for (int64_t lane = 0; lane < lanes; ++lane) {
        const Shape shape{(rows - lane + lanes - 1) / lanes, made.dim};
        const std::string name = fmt::format("table{}/part_{}", tables_.size(), made.parts.size());
        ir::AttrMap attrs = spec_of(shape);
        attrs["shared_name"] = name;
        made.parts.push_back(b.add("Variable", {}, attrs, name));
        // Whole tables are on both devices.
        const size_t place = tasks == 1 ? tables_.size() % 2 : static_cast<size_t>(task);
        const std::string& device = four_devices()[place];
        graph.mutable_node(made.parts.back().node).device = device;
        variables[device][name] = dice.tensor(DType::kFloat32, shape, -1, 1);
      }
    }
    tables_.push_back(std::move(made));
  }

  Output fed() {
    const std::string name = fmt::format("ids{}", feeds.size());
    const Shape shape = dice.chance(50) ? Shape{dice.number(0, 30)} : Shape{dice.number(1, 6), 3};
    feeds[name] = dice.tensor(DType::kInt64, shape, lowest(), kRows - 1);
    // Look-ups by few ids would not be expanded.
    return ops::placeholder(b, name, DType::kInt64, shape.rank() == 1 ? Shape{-1} : Shape{-1, 3});
  }
  /// Ids below 0 are those of no row, where tables are in parts.
  [[nodiscard]] int64_t lowest() const { return lanes_ == Ints{1} ? 0 : -1; }

  /// Rows of a part.
  Output gather(Output part, Output rows) {
    const auto* shape = ir::find_attr<Shape>(graph.node(part.node).attrs, "shape");
    const ir::NodeId read = add_at(part, "VariableRead", {part}, spec_of(*shape));
    return {add_at(part, "Gather", {{read, 0}, rows}), 0};
  }

  /// The Unique and the Route of ids of a table in parts.
  std::pair<ir::NodeId, ir::NodeId> routed(const Table& table, Output ids) {
    ir::NodeId& unique = uniques_[ids];
    if (!unique.valid()) unique = b.add_node("Unique", {ids});
    ir::NodeId& route = routes_[{ids, table.rows}];
    if (!route.valid()) {
      route = b.add_node("Route", {{unique, 0}}, {{"rows", table.rows}, {"lanes", lanes_}});
    }
    return {unique, route};
  }

  Output lookup(const Table& table, Output ids) {
    if (table.parts.size() == 1) return gather(table.parts[0], ids);
    const auto [unique, route] = routed(table, ids);
    std::vector<Output> in = {ids, {route, static_cast<int32_t>(table.parts.size())}, {unique, 1}};
    for (size_t p = 0; p < table.parts.size(); ++p) {
      in.push_back(gather(table.parts[p], {route, static_cast<int32_t>(p)}));
    }
    return b.add("GatherParts", in, {{"dim", table.dim}});
  }

  void update(const Table& table, Output ids, Output grads) {
    const Output step = ops::scalar(b, DType::kFloat64, 1);
    const Output rate = ops::scalar(b, DType::kFloat64, kRate);
    const auto change = [&](Output part, Output rows, Output values, bool distinct) {
      ir::AttrMap attrs = {{"kind", std::string("sgd")}};
      if (distinct) attrs["distinct"] = true;
      targets.push_back(
          add_at(part, "VariableUpdateRows", {part, rows, values, step, rate}, attrs));
    };
    if (table.parts.size() == 1) return change(table.parts[0], ids, grads, false);
    const auto [unique, route] = routed(table, ids);
    std::vector<Output> in = {
        grads, {route, static_cast<int32_t>(table.parts.size())}, {unique, 1}};
    for (size_t p = 0; p < table.parts.size(); ++p) in.push_back({route, static_cast<int32_t>(p)});
    const ir::NodeId sums = b.add_node("SumParts", in, {{"dim", table.dim}});
    for (size_t p = 0; p < table.parts.size(); ++p) {
      const auto part = static_cast<int32_t>(p);
      change(table.parts[p], {route, part}, {sums, part}, true);
    }
  }

  /// Joins lookups of one batch, and updates their tables by the gradients of that.
  void join() {
    const int64_t batch = dice.number(0, 20);
    const bool is_stack = dice.chance(50);
    const int64_t dim = dice.number(1, 5);
    std::vector<Output> parts;
    std::vector<std::pair<size_t, Output>> lookups;
    std::vector<Output> wrt;
    for (int64_t i = dice.number(1, 6); i > 0; --i) {
      const int64_t count = is_stack || dice.chance(60) ? 1 : dice.number(2, 4);
      if (dice.chance(25)) {
        const std::string name = fmt::format("dense{}", feeds.size());
        feeds[name] = dice.tensor(DType::kFloat32, {batch, dim}, -1, 1);
        parts.push_back(ops::placeholder(b, name, DType::kFloat32, {-1, dim}));
        continue;
      }
      add_table(dim);
      const std::string name = fmt::format("joined{}", feeds.size());
      const Shape shape = count == 1 ? Shape{batch} : Shape{batch, count};
      feeds[name] = dice.tensor(DType::kInt64, shape, lowest(), kRows - 1);
      const Output ids =
          ops::placeholder(b, name, DType::kInt64, count == 1 ? Shape{-1} : Shape{-1, count});
      const Output rows = lookup(tables_.back(), ids);
      wrt.push_back(rows);
      lookups.emplace_back(tables_.size() - 1, ids);
      parts.push_back(count == 1 ? rows : ops::reshape(b, rows, {-1, count * dim}));
    }
    const Output joined =
        is_stack ? b.add("Stack", parts, {{"axis", int64_t{1}}}) : ops::concat(b, parts, -1);
    const Output loss = ops::reduce_sum(b, ops::square(b, ops::tanh(b, joined)), {}, false);
    fetches.push_back(loss);
    if (wrt.empty()) return;
    const auto grads = autodiff::gradients(b, loss, wrt);
    ASSERT_TRUE(grads.ok()) << grads.status();
    for (size_t i = 0; i < lookups.size(); ++i) {
      update(tables_[lookups[i].first], lookups[i].second, (*grads)[i]);
    }
  }

  /// Ids that rows of a table say.
  Output derived() {
    const Output sum = ops::reduce_sum(b, ops::square(b, dice.pick(rows_)), {-1}, false);
    return ops::cast(b, ops::minimum(b, sum, ops::scalar(b, DType::kFloat32, kRows - 1)),
                     DType::kInt64);
  }

  static constexpr int64_t kRows = 11;
  const Ints lanes_;  // By task that has parts of a table: how many.
  std::vector<Table> tables_;
  std::vector<Output> ids_;
  std::vector<Output> rows_;
  std::vector<std::pair<size_t, Output>> looked_up_;  // Table and ids.
  std::map<Output, ir::NodeId> uniques_;
  std::map<std::pair<Output, int64_t>, ir::NodeId> routes_;
};

TEST(TablesOfAPs, laid_out_change_no_call_and_no_bit_of_any_result) {
  int united = 0;
  int joined = 0;
  for (uint32_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    RandomTables tables(seed);
    const std::vector<std::string> plain = tables.run(false);
    EXPECT_FALSE(tables.ops.contains("UniqueRoute"));
    const size_t calls = tables.calls;
    EXPECT_EQ(tables.run(true), plain);
    EXPECT_EQ(tables.calls, calls);
    united += tables.ops.contains("UniqueRoute") ? 1 : 0;
    joined += tables.ops.contains("GatherPartsConcat") ? 1 : 0;
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GT(united, 150);
  EXPECT_GT(joined, 150);
}

TEST(TablesOfAPs, cut_lite_give_the_same_bits_in_no_more_calls) {
  for (uint32_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    RandomTables tables(seed);
    const std::vector<std::string> layers = tables.run(true, Mode::kLayers);
    const size_t calls = tables.calls;
    EXPECT_EQ(tables.run(true, Mode::kLite), layers);
    EXPECT_LE(tables.calls, calls);
    if (testing::Test::HasFailure()) return;
  }
}

TEST(TablesOfAPs, an_id_outside_its_table_is_named_with_the_table) {
  ir::Graph graph;
  Builder b(&graph, &test_registry());
  std::vector<Output> rows;
  for (const char* name : {"small", "large"}) {
    const Shape shape{rows.empty() ? 5 : 50, 2};
    const ir::AttrMap spec = {{"dtype", DType::kFloat32}, {"shape", shape}};
    ir::AttrMap named = spec;
    named["shared_name"] = std::string(name);
    const Output ids = ops::placeholder(b, fmt::format("{}_ids", name), DType::kInt64, {-1});
    const Output handle = b.add("Variable", {}, named, name);
    const Output read = b.add("VariableRead", {handle}, spec);
    rows.push_back(b.add("Gather", {read, ids}));
    for (const Output& o : {handle, read, rows.back()}) {
      graph.mutable_node(o.node).device = four_devices()[0];
    }
  }
  place_rest(&graph);
  const auto step = passes::run_passes(graph, rows, {}, test_registry());
  ASSERT_TRUE(step.ok()) << step.status();
  Dice dice(3);
  DrivenCalls driven(&dice, Mode::kLayers);
  const Status made = driven.make(step->graph, driver(), step->fetches);
  ASSERT_TRUE(made.ok()) << made;
  const reference::Values feeds = {{"small_ids", dice.tensor(DType::kInt64, {4}, 5, 5)},
                                   {"large_ids", dice.tensor(DType::kInt64, {4}, 5, 5)}};
  const Status status = driven.run(feeds, 1).status();
  EXPECT_EQ(status.code(), base::StatusCode::kInvalidArgument);
  EXPECT_NE(base::message_of(status).find("table 'small': id 5 is outside"), std::string::npos)
      << status;
}

}  // namespace
}  // namespace sidereal::exec
