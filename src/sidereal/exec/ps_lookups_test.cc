#include <gtest/gtest.h>

#include "sidereal/autodiff/autodiff.h"
#include "sidereal/exec/testing/lanes.h"
#include "sidereal/ir/function.h"
#include "sidereal/ops/control.h"
#include "sidereal/ops/ops.h"

// Steps on a ps whose tables have one unique-and-route, and whose rows go straight to where they
// are joined, beside those where each table is on its own: the same calls, values and updates, bit
// for bit.
namespace sidereal::exec {
namespace {

using ir::Builder;
using ir::Output;
using tensor::DType;
using tensor::Shape;
using tensor::Tensor;

constexpr float kRate = 0.25F;

/// Lookups in some tables by ids of their own, ids they share, and ids that other lookups give; and
/// updates of the tables, by ids of lookups and by others.
class RandomTables {
 public:
  explicit RandomTables(uint32_t seed) : dice(seed) {
    for (int64_t i = dice.number(1, 4); i > 0; --i) add_table();
    for (int64_t i = dice.number(1, 3); i > 0; --i) ids_.push_back(fed());
    for (int64_t i = dice.number(1, 8); i > 0; --i) {
      const Output ids = dice.chance(15) && !rows_.empty() ? derived() : dice.pick(ids_);
      if (dice.chance(40)) ids_.push_back(fed());
      const std::string& table = dice.pick(tables_);
      rows_.push_back(ops::lookup(b, table, ids));
      looked_up_.emplace_back(table, ids);
    }
    for (const Output& rows : rows_) {
      if (dice.chance(60)) fetches.push_back(rows);
    }
    join();
    if (fetches.empty()) fetches.push_back(rows_.back());
    for (size_t i = 0; i < rows_.size(); ++i) {
      if (dice.chance(50)) continue;
      targets.push_back(
          ops::apply_sparse(b, looked_up_[i].first, looked_up_[i].second, ops::tanh(b, rows_[i])));
    }
    EXPECT_TRUE(b.status().ok()) << b.status();
  }

  /// Bytes of all fetches and, afterwards, of all tables; or the error.
  std::vector<std::string> run(const passes::Topology& topology, bool fuse,
                               partition::PullPushOptions::Mode mode = {}) {
    const auto step =
        compile_for_test(graph, fetches, targets, topology, {.fuse = fuse}, {.mode = mode});
    EXPECT_TRUE(step.ok()) << step.status();
    if (!step.ok()) return {};
    reference::Values values;
    for (const auto& [name, value] : variables) values[name] = value.clone();
    BufferPool pool(1 << 20);
    TestVariables tables(&values, &step->placement, kRate);
    TestExchange exchange(&step->compiled, &tables, &pool);
    const auto bound = BoundProgram::bind(step->compiled.worker, all_kernels(), {});
    EXPECT_TRUE(bound.ok()) << bound.status();
    if (!bound.ok()) return {};
    calls = step->compiled.worker.calls.size();
    ops = ops_of(step->compiled.worker);
    Step running(bound->get(), &pool, &exchange);
    std::vector<std::string> out;
    for (uint64_t id = 1; id <= 2; ++id) {
      const auto got = run_step(&running, step->compiled.worker, feeds, id, &exchange, &dice);
      EXPECT_TRUE(got.ok()) << got.status();
      if (!got.ok()) return {};
      for (const Tensor& t : *got) out.push_back(bytes_of(t));
    }
    for (const auto& [name, value] : values) out.push_back(bytes_of(value));
    return out;
  }

  Dice dice;
  ir::Graph graph;
  Builder b{&graph, &test_registry()};
  reference::Values feeds;
  reference::Values variables;
  std::vector<Output> fetches;
  std::vector<ir::NodeId> targets;
  std::set<std::string> ops;
  size_t calls = 0;

 private:
  static std::string bytes_of(const Tensor& t) {
    return t.to_string() + std::string(reinterpret_cast<const char*>(t.raw()), t.nbytes());
  }

  void add_table(int64_t dim = 0) {
    ir::VariableDef def;
    def.name = fmt::format("table{}", tables_.size());
    def.shape = {dice.pick<int64_t>({kRows, kRows, kRows + 3}), dim > 0 ? dim : dice.number(1, 5)};
    def.embedding = true;
    def.optimizer = {"sgd", {{"learning_rate", kRate}}};
    variables[def.name] = dice.tensor(DType::kFloat32, def.shape, -1, 1);
    tables_.push_back(b.variable(def));
  }

  Output fed() {
    const std::string name = fmt::format("ids{}", feeds.size());
    const Shape shape = dice.chance(50) ? Shape{dice.number(0, 30)} : Shape{dice.number(1, 6), 3};
    feeds[name] = dice.tensor(DType::kInt64, shape, -1, kRows - 1);
    return ops::placeholder(b, name, DType::kInt64, shape);
  }

  /// Joins lookups of one batch, and updates their tables by the gradients of that.
  void join() {
    const int64_t batch = dice.number(0, 20);
    const bool is_stack = dice.chance(50);
    const int64_t dim = dice.number(1, 5);
    std::vector<Output> parts;
    std::vector<std::pair<std::string, Output>> lookups;
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
      feeds[name] = dice.tensor(DType::kInt64, shape, -1, kRows - 1);
      const Output ids =
          ops::placeholder(b, name, DType::kInt64, count == 1 ? Shape{-1} : Shape{-1, count});
      const Output rows = ops::lookup(b, tables_.back(), ids);
      wrt.push_back(rows);
      lookups.emplace_back(tables_.back(), ids);
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
      targets.push_back(ops::apply_sparse(b, lookups[i].first, lookups[i].second, (*grads)[i]));
    }
  }

  /// Ids that rows of a table say.
  Output derived() {
    const Output sum = ops::reduce_sum(b, ops::square(b, dice.pick(rows_)), {-1}, false);
    return ops::cast(b, ops::minimum(b, sum, ops::scalar(b, DType::kFloat32, kRows - 1)),
                     DType::kInt64);
  }

  static constexpr int64_t kRows = 11;
  std::vector<std::string> tables_;
  std::vector<Output> ids_;
  std::vector<Output> rows_;
  std::vector<std::pair<std::string, Output>> looked_up_;
};

TEST(TablesOfAPs, laid_out_change_no_call_and_no_bit_of_any_result) {
  int united = 0;
  int joined = 0;
  for (uint32_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    RandomTables tables(seed);
    const passes::Topology topology{
        tables.dice.pick<std::vector<int32_t>>({{1}, {2}, {1, 1}, {3, 2}})};
    const std::vector<std::string> plain = tables.run(topology, false);
    EXPECT_FALSE(tables.ops.contains("UniqueRoute"));
    const size_t calls = tables.calls;
    EXPECT_EQ(tables.run(topology, true), plain);
    EXPECT_EQ(tables.calls, calls);
    united += tables.ops.contains("UniqueRoute") ? 1 : 0;
    joined += tables.ops.contains("GatherPartsConcat") ? 1 : 0;
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GT(united, 150);
  EXPECT_GT(joined, 150);
}

TEST(TablesOfAPs, cut_lite_give_the_same_bits_in_no_more_calls) {
  using Mode = partition::PullPushOptions::Mode;
  for (uint32_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    RandomTables tables(seed);
    const passes::Topology topology{
        tables.dice.pick<std::vector<int32_t>>({{1}, {2}, {1, 1}, {3, 2}})};
    const std::vector<std::string> layers = tables.run(topology, true, Mode::kLayers);
    const size_t calls = tables.calls;
    EXPECT_EQ(tables.run(topology, true, Mode::kLite), layers);
    EXPECT_LE(tables.calls, calls);
    if (testing::Test::HasFailure()) return;
  }
}

TEST(TablesOfAPs, an_id_outside_its_table_is_named_with_the_table) {
  ir::Graph graph;
  Builder b(&graph, &test_registry());
  reference::Values values;
  std::vector<Output> rows;
  for (const char* name : {"small", "large"}) {
    ir::VariableDef def;
    def.name = name;
    def.shape = {rows.empty() ? 5 : 50, 2};
    def.embedding = true;
    values[name] = Tensor::zeros(DType::kFloat32, def.shape);
    const Output ids = ops::placeholder(b, fmt::format("{}_ids", name), DType::kInt64, {-1});
    rows.push_back(ops::lookup(b, b.variable(def), ids));
  }
  const auto step = compile_for_test(graph, rows, {}, {{2}});
  ASSERT_TRUE(step.ok()) << step.status();
  BufferPool pool(1 << 20);
  TestVariables variables(&values, &step->placement, kRate);
  TestExchange exchange(&step->compiled, &variables, &pool);
  const auto bound = BoundProgram::bind(step->compiled.worker, all_kernels(), {});
  ASSERT_TRUE(bound.ok()) << bound.status();
  Step running(bound->get(), &pool, &exchange);
  Dice dice(3);
  const reference::Values feeds = {{"small_ids", dice.tensor(DType::kInt64, {4}, 5, 5)},
                                   {"large_ids", dice.tensor(DType::kInt64, {4}, 5, 5)}};
  const Status status =
      run_step(&running, step->compiled.worker, feeds, 1, &exchange, &dice).status();
  EXPECT_EQ(status.code(), base::StatusCode::kOutOfRange);
  EXPECT_NE(base::message_of(status).find("table 'small': id 5 is outside"), std::string::npos)
      << status;
}

/// Three rows of ids: s' = tanh(s + w * sum(rows of the table)); after each, w is pushed s.
class LoopModel {
 public:
  explicit LoopModel(bool written_out) {
    declare(b);
    const Output s = ops::placeholder(b, "s", DType::kFloat32, {kDim});
    const Output ids = ops::placeholder(b, "ids", DType::kInt64, {3, 2});
    if (written_out) {
      Output state = s;
      ir::NodeId pushed;
      for (int64_t t = 0; t < 3; ++t) {
        const Output row = ops::reshape(b, ops::slice_axis(b, ids, 0, t, 1), {2});
        state = iterate(b, state, row, &pushed);
      }
      fetches = {state, read(b, {pushed})};
      targets = {pushed};
      return;
    }
    ir::Graph body;
    const Output state = *ir::add_arg(&body, test_registry(), {DType::kFloat32, {kDim}});
    const Output row = *ir::add_arg(&body, test_registry(), {DType::kInt64, {2}});
    Builder f(&body, &test_registry());
    declare(f);
    ir::NodeId pushed;
    const Output next = iterate(f, state, row, &pushed);
    const ir::NodeId loop = ops::scan(b, *ir::Function::make(std::move(body), {next}, {pushed}),
                                      {s}, {ids}, {}, {}, "loop");
    fetches = {{loop, 0}, read(b, {loop})};
  }

  /// What two steps fetch, and the variables behind them.
  std::vector<Tensor> run(const passes::Topology& topology, Dice* dice) const {
    const auto step = compile_for_test(graph, fetches, targets, topology);
    EXPECT_TRUE(step.ok()) << step.status();
    if (!step.ok()) return {};
    reference::Values values;
    for (const auto& [name, value] : first_values()) values[name] = value.clone();
    BufferPool pool(1 << 20);
    TestVariables variables(&values, &step->placement, kRate);
    TestExchange exchange(&step->compiled, &variables, &pool);
    const auto bound = BoundProgram::bind(step->compiled.worker, all_kernels(), {});
    EXPECT_TRUE(bound.ok()) << bound.status();
    if (!bound.ok()) return {};
    Step running(bound->get(), &pool, &exchange);
    const reference::Values feeds = {{"s", Tensor::of<float>({kDim}, {0.5F, -0.25F, 1})},
                                     {"ids", Tensor::of<int64_t>({3, 2}, {1, 2, 2, 9, 0, 5})}};
    std::vector<Tensor> out;
    for (uint64_t id = 1; id <= 2; ++id) {
      const auto got = run_step(&running, step->compiled.worker, feeds, id, &exchange, dice);
      EXPECT_TRUE(got.ok()) << got.status();
      if (!got.ok()) return {};
      for (const Tensor& t : *got) out.push_back(t.clone());
    }
    for (const auto& [name, value] : values) out.push_back(value.clone());
    return out;
  }

 private:
  static constexpr int64_t kDim = 3;

  static reference::Values first_values() {
    Dice dice(3);
    reference::Values out;
    out["table"] = dice.tensor(DType::kFloat32, {10, kDim}, -1, 1);
    out["w"] = dice.tensor(DType::kFloat32, {kDim}, -1, 1);
    return out;
  }
  static void declare(Builder& to) {
    ir::VariableDef table;
    table.name = "table";
    table.shape = {10, kDim};
    table.embedding = true;
    to.variable(table);
    ir::VariableDef w;
    w.name = "w";
    w.shape = {kDim};
    to.variable(w);
  }
  static Output read(Builder& to, const std::vector<ir::NodeId>& after) {
    return {to.add_node("ReadVariable", {}, {{"var", std::string("w")}}, after), 0};
  }
  static Output iterate(Builder& to, Output state, Output ids, ir::NodeId* pushed) {
    const Output rows = ops::reduce_sum(to, ops::lookup(to, "table", ids), {0});
    std::vector<ir::NodeId> after;
    if (pushed->valid()) after.push_back(*pushed);
    const Output w = read(to, after);
    const Output next = ops::tanh(to, ops::add(to, state, ops::mul(to, w, rows)));
    *pushed = ops::apply_dense(to, "w", next);
    return next;
  }

 public:
  ir::Graph graph;
  Builder b{&graph, &test_registry()};
  std::vector<Output> fetches;
  std::vector<ir::NodeId> targets;
};

TEST(TablesOfAPs, in_a_loop_are_pulled_and_pushed_in_each_iteration_as_if_it_were_written_out) {
  Dice dice(11);
  const LoopModel loop(false);
  const LoopModel written_out(true);
  EXPECT_TRUE(loop.b.status().ok()) << loop.b.status();
  for (const passes::Topology& topology :
       {passes::Topology{{1}}, passes::Topology{{2}}, passes::Topology{{1, 2}}}) {
    expect_same(loop.run(topology, &dice), written_out.run(topology, &dice));
  }
}

TEST(TablesOfAPs, that_only_a_loop_reads_are_not_left_untrained_silently) {
  LoopModel loop(false);
  const auto trained = autodiff::minimize(loop.b, ops::reduce_sum(loop.b, loop.fetches[0]),
                                          {"sgd", {{"learning_rate", kRate}}});
  EXPECT_EQ(trained.status().code(), StatusCode::kUnimplemented) << trained.status();
}

}  // namespace
}  // namespace sidereal::exec
