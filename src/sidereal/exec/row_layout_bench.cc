// Rows of a variable of a session taken and updated, in its two layouts, beside the same kernels on
// bare memory. One iteration is one step of a program of one op with fresh row numbers, 26 fields x
// 1024 drawn, which are distinct; items are rows.
//   layout 0: weights and slots are arrays of their own; rows are gathered from the value that is
//             read, and equal ids are looked for
//   layout 1: weights and slots lie in one row
//   skewed:   drawn with probability about 1 / rank, before equal ones are left out
// small_update: layout 1 of 1,000,000 rows of 16 weights and an adagrad slot, so many of them
// hot_rows: a call of so many rows, of which hot ones are looked for; of one row, and drawn as
// skewed small_gather, small_update with counted 1: the variable belongs to a lane, for which calls
// are
//           counted and hot rows looked for
// counting: what is counted of a pull and a push, for figures, of so many workers in turn: at most
//           1 % of a small update of 256 rows
#include <benchmark/benchmark.h>

#include <array>
#include <cmath>
#include <functional>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "sidereal/base/check.h"
#include "sidereal/exec/executor.h"
#include "sidereal/exec/one_op.h"
#include "sidereal/kernels/optimizer.h"
#include "sidereal/kernels/sparse.h"
#include "sidereal/kernels/thread.h"
#include "sidereal/resources/variable.h"

namespace sidereal::exec {
namespace {

using tensor::DType;
using tensor::Shape;
using tensor::Tensor;

constexpr int64_t kIds = 26 * 1024;
constexpr int kBatches = 32;
constexpr float kRate = 0.1F;
/// Rules with as many slots as their place says.
constexpr std::array<const char*, 3> kRules = {"sgd", "adagrad", "adam"};
constexpr std::array<const char*, 3> kNames = {"w", "slot", "slot2"};

std::vector<Tensor> draw_batches(int64_t rows, bool skewed) {
  std::vector<Tensor> batches;
  for (int b = 0; b < kBatches; ++b) {
    std::mt19937_64 rng(static_cast<uint64_t>(b));
    std::uniform_real_distribution<double> unit(0.0, 1.0);
    const auto count = static_cast<double>(rows);
    std::vector<int64_t> ids(kIds);
    for (int64_t& id : ids) {
      const double u = unit(rng);
      const auto rank = static_cast<uint64_t>(skewed ? std::pow(count, u) - 1.0 : u * count);
      id = static_cast<int64_t>(rank * 2654435761U % static_cast<uint64_t>(rows));
    }
    kernels::UniqueScratch scratch;
    std::vector<int64_t> distinct(kIds);
    std::vector<int32_t> inverse(kIds);
    distinct.resize(kernels::unique(ids, scratch, distinct.data(), inverse.data()));
    batches.push_back(Tensor::of(Shape{static_cast<int64_t>(distinct.size())}, distinct));
  }
  return batches;
}

/// For each batch as many rows of gradients.
std::vector<Tensor> gradients_of(const std::vector<Tensor>& batches, int64_t dim) {
  std::vector<Tensor> out;
  for (const Tensor& ids : batches) {
    out.push_back(Tensor::empty(DType::kFloat32, Shape{ids.num_elements(), dim}));
    for (float& x : out.back().data<float>()) x = 1e-3F;
  }
  return out;
}

/// A table of a session with the slots of a rule.
class Table {
 public:
  Table(int64_t rows, int64_t dim, int slots, bool in_rows, bool is_counted = false)
      : rows_(rows), dim_(dim), slots_(slots) {
    register_kernels(&kernels_);
    environment_.resources = &manager_;
    for (int i = 0; i <= slots_; ++i) {
      const char* const name = kNames[static_cast<size_t>(i)];
      const auto owner = is_counted ? std::make_shared<resources::Owner>(&lanes_, 0) : nullptr;
      const auto made = *manager_.find_or_create<resources::Variable>(
          name, [&] { return *resources::Variable::make({.name = name}, owner); });
      Tensor value = Tensor::empty(DType::kFloat32, Shape{rows, dim});
      for (float& x : value.data<float>()) x = 0.1F;
      SR_CHECK(made->assign(value).ok());
    }
    // A table that was updated without slots gets none later.
    const Tensor ids = Tensor::of<int64_t>(Shape{1}, {0});
    const Tensor grads = Tensor::zeros(DType::kFloat32, Shape{1, dim});
    const int used = in_rows ? slots_ : 0;
    Op op = updates(used, true);
    run(op, update_inputs(used, ids, grads));
  }

  /// A program of one op: its kernels keep what they need between steps.
  struct Op {
    std::unique_ptr<BoundProgram> bound;
    std::unique_ptr<Step> step;
  };
  Op bind(program::Program program) {
    Op out;
    auto bound = BoundProgram::bind(std::move(program), kernels_, environment_);
    SR_CHECK(bound.ok());
    out.bound = *std::move(bound);
    out.step = std::make_unique<Step>(out.bound.get(), &pool_, nullptr);
    return out;
  }
  static ir::Node node(const std::string& op, ir::AttrMap attrs) {
    ir::Node out;
    out.op = op;
    out.name = op;
    out.attrs = std::move(attrs);
    return out;
  }
  Op gather(bool whole) {
    const ir::TensorSpec handle = {DType::kString, {}};
    const ir::TensorSpec ids = {DType::kInt64, {-1}};
    ir::Node one = node(whole ? "Gather" : "VariableGather", {{"dtype", DType::kFloat32}});
    one.outputs = {{DType::kFloat32, {-1, dim_}}};
    program::Program program = one_op_program(one, {handle, ids});
    program.slots.back().buffer = 0;
    program.num_buffers = 1;
    if (whole) {
      const auto value = static_cast<int32_t>(program.slots.size());
      program.slots.push_back({DType::kFloat32, {rows_, dim_}, -1});
      program::Instruction read;
      read.op = read.name = "VariableRead";
      read.inputs = {0};
      read.outputs = {value};
      program.instructions[0].inputs[0] = value;
      program.instructions[0].releases = {value};
      program.instructions.insert(program.instructions.begin(), read);
    }
    return bind(std::move(program));
  }
  Op updates(int slots, bool distinct) {
    std::vector<ir::TensorSpec> inputs = {{DType::kString, {}},
                                          {DType::kInt64, {-1}},
                                          {DType::kFloat32, {-1, dim_}},
                                          {DType::kFloat64, {}},
                                          {DType::kFloat32, {}}};
    for (int i = 0; i < slots; ++i) inputs.push_back({DType::kString, {}});
    const std::string kind = kRules[static_cast<size_t>(slots)];
    return bind(one_op_program(node("VariableUpdateRows", {{"kind", kind}, {"distinct", distinct}}),
                               inputs));
  }
  static std::vector<Tensor> update_inputs(int slots, const Tensor& ids, const Tensor& grads) {
    std::vector<Tensor> out = {handle(kNames[0]), ids, grads, Tensor::scalar(1.0),
                               Tensor::scalar(kRate)};
    for (int i = 1; i <= slots; ++i) out.push_back(handle(kNames[static_cast<size_t>(i)]));
    return out;
  }
  static Tensor handle(const char* name) {
    return Tensor::strings(Shape(), std::vector<std::string>{name});
  }
  static void run(Op& op, const std::vector<Tensor>& inputs) {
    op.step->begin(1);
    for (size_t i = 0; i < inputs.size(); ++i) {
      SR_CHECK(op.step->feed(static_cast<int>(i), inputs[i]).ok());
    }
    const auto progress = op.step->advance();
    SR_CHECK(progress.ok(), "{}", base::message_of(progress.status()));
    op.step->end();
  }

 private:
  /// One, on the thread of which all runs.
  class OneLane final : public resources::Lanes {
   public:
    bool post(int, std::function<void()>) override { return false; }
  };

  int64_t rows_;
  int64_t dim_;
  int slots_;
  OneLane lanes_;
  KernelTable kernels_;
  resources::Manager manager_;
  Environment environment_;
  BufferPool pool_{size_t{256} << 20};
};

void gather(benchmark::State& state) {
  kernels::prepare_thread();
  Table table(state.range(0), state.range(1), 1, state.range(2) != 0);
  Table::Op op = table.gather(state.range(2) == 0);
  const std::vector<Tensor> batches = draw_batches(state.range(0), state.range(3) != 0);
  const Tensor handle = Table::handle(kNames[0]);
  size_t at = 0;
  int64_t rows = 0;
  for (auto _ : state) {
    const Tensor& ids = batches[at++ % kBatches];
    Table::run(op, {handle, ids});
    rows += ids.num_elements();
  }
  state.SetItemsProcessed(rows);
}

void update(benchmark::State& state) {
  kernels::prepare_thread();
  const auto slots = static_cast<int>(state.range(4));
  const bool in_rows = state.range(2) != 0;
  Table table(state.range(0), state.range(1), slots, in_rows);
  Table::Op op = table.updates(slots, in_rows);
  const std::vector<Tensor> batches = draw_batches(state.range(0), state.range(3) != 0);
  const std::vector<Tensor> grads = gradients_of(batches, state.range(1));
  std::vector<Tensor> inputs = Table::update_inputs(slots, batches[0], grads[0]);
  size_t at = 0;
  int64_t rows = 0;
  for (auto _ : state) {
    const size_t batch = at++ % kBatches;
    inputs[1] = batches[batch];
    inputs[2] = grads[batch];
    Table::run(op, inputs);
    rows += batches[batch].num_elements();
  }
  state.SetItemsProcessed(rows);
}

/// Memory for rows of weights and an adagrad slot, as layout 1 has it for 16 and 64 weights.
Tensor bare_rows(int64_t rows, int64_t dim) {
  Tensor out = Tensor::empty(DType::kFloat32, Shape{rows, 2 * dim});
  for (float& x : out.data<float>()) x = 0.1F;
  return out;
}

void bare_gather(benchmark::State& state) {
  kernels::prepare_thread();
  const int64_t dim = state.range(1);
  const Tensor table = bare_rows(state.range(0), dim);
  const float* const from = table.data<const float>().data();
  const std::vector<Tensor> batches = draw_batches(state.range(0), state.range(3) != 0);
  std::vector<float> out(static_cast<size_t>(kIds * dim));
  size_t at = 0;
  int64_t rows = 0;
  for (auto _ : state) {
    const Tensor& ids = batches[at++ % kBatches];
    kernels::gather_rows(from, 2 * dim, ids.data<const int64_t>(), dim, out.data());
    benchmark::ClobberMemory();
    rows += ids.num_elements();
  }
  state.SetItemsProcessed(rows);
}

void bare_update(benchmark::State& state) {
  kernels::prepare_thread();
  const int64_t dim = state.range(1);
  Tensor table = bare_rows(state.range(0), dim);
  const kernels::UpdateRule rule = kernels::UpdateRule::of("adagrad", {});
  const kernels::RuleStep step = {.rule = &rule, .learning_rate = kRate};
  const auto arrays = kernels::arrays_of_rows(rule, table.data<float>().data(), 2 * dim, dim);
  const std::vector<Tensor> batches = draw_batches(state.range(0), state.range(3) != 0);
  const std::vector<Tensor> grads = gradients_of(batches, dim);
  size_t at = 0;
  int64_t rows = 0;
  for (auto _ : state) {
    const size_t batch = at++ % kBatches;
    kernels::apply_rows<float>(step, arrays, batches[batch].data<const int64_t>(),
                               {.data = grads[batch].data<const float>().data()}, dim);
    rows += batches[batch].num_elements();
  }
  state.SetItemsProcessed(rows);
}

std::vector<Tensor> small_batches(int64_t rows, int64_t count) {
  std::vector<Tensor> batches = draw_batches(rows, false);
  for (Tensor& batch : batches) {
    const std::span<const int64_t> ids = batch.data<const int64_t>();
    batch = Tensor::of(Shape{count}, std::vector<int64_t>(ids.begin(), ids.begin() + count));
  }
  return batches;
}

void small_gather(benchmark::State& state) {
  kernels::prepare_thread();
  constexpr int64_t kRows = 1'000'000;
  const int64_t count = state.range(0);
  Table table(kRows, 16, 1, true, state.range(1) != 0);
  Table::Op op = table.gather(false);
  const std::vector<Tensor> batches = small_batches(kRows, count);
  const Tensor handle = Table::handle(kNames[0]);
  size_t at = 0;
  for (auto _ : state) Table::run(op, {handle, batches[at++ % kBatches]});
  state.SetItemsProcessed(static_cast<int64_t>(state.iterations()) * count);
}

void small_update(benchmark::State& state) {
  kernels::prepare_thread();
  constexpr int64_t kRows = 1'000'000;
  constexpr int64_t kDim = 16;
  const int64_t count = state.range(0);
  Table table(kRows, kDim, 1, true, state.range(1) != 0);
  Table::Op op = table.updates(1, true);
  const std::vector<Tensor> batches = small_batches(kRows, count);
  const std::vector<Tensor> grads = gradients_of(batches, kDim);
  std::vector<Tensor> inputs = Table::update_inputs(1, batches[0], grads[0]);
  size_t at = 0;
  for (auto _ : state) {
    const size_t batch = at++ % kBatches;
    inputs[1] = batches[batch];
    inputs[2] = grads[batch];
    Table::run(op, inputs);
  }
  state.SetItemsProcessed(static_cast<int64_t>(state.iterations()) * count);
}

void counting(benchmark::State& state) {
  const auto counts = std::make_shared<resources::PushCounts>(1);
  const resources::PushCounts::OnLane here(counts.get(), 0);
  resources::Staleness staleness;
  const int64_t workers = state.range(0);
  uint64_t step = 0;
  for (auto _ : state) {
    ++step;
    // Others have pushed between.
    const auto pusher_of = [workers](uint64_t number) {
      return 1 + static_cast<int>(number % static_cast<uint64_t>(workers));
    };
    staleness.note_read(step + 3, pusher_of(step + 3));
    staleness.note_change(step, pusher_of(step), true, 64);
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(static_cast<int64_t>(state.iterations()));
}

void hot_rows(benchmark::State& state) {
  const std::vector<Tensor> batches = draw_batches(1'000'000, state.range(1) != 0);
  const auto count = static_cast<size_t>(state.range(0));
  resources::HotRows hot;
  size_t at = 0;
  for (auto _ : state) {
    const std::span<const int64_t> ids = batches[at / 16 % kBatches].data<const int64_t>();
    hot.note(ids.subspan(at++ % 16 * count, count));
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(static_cast<int64_t>(state.iterations() * count));
}

using Cases = std::vector<std::vector<int64_t>>;
/// Rows, dim, layout, skewed.
Cases cases(bool bare) {
  Cases out;
  for (const int64_t layout : {0, 1}) {
    if (bare && layout == 0) continue;
    out.push_back({1'000'000, 16, layout, 0});
    out.push_back({4'000'000, 16, layout, 0});
    out.push_back({4'000'000, 16, layout, 1});
    out.push_back({1'000'000, 64, layout, 0});
    out.push_back({4'000'000, 1, layout, 0});
  }
  return out;
}
void of_layouts(benchmark::internal::Benchmark* bench) {
  for (const auto& one : cases(false)) bench->Args(one);
}
void of_bare(benchmark::internal::Benchmark* bench) {
  for (const auto& one : cases(true)) bench->Args(one);
}
void of_rules(benchmark::internal::Benchmark* bench) {
  for (std::vector<int64_t> one : cases(false)) {
    one.push_back(1);
    bench->Args(one);
  }
  bench->Args({4'000'000, 16, 0, 0, 0})->Args({4'000'000, 16, 1, 0, 2});
}
BENCHMARK(gather)->ArgNames({"rows", "dim", "layout", "skewed"})->Apply(of_layouts);
BENCHMARK(bare_gather)->ArgNames({"rows", "dim", "layout", "skewed"})->Apply(of_bare);
BENCHMARK(update)->ArgNames({"rows", "dim", "layout", "skewed", "slots"})->Apply(of_rules);
void of_small(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"count", "counted"});
  for (const int64_t count : {1, 32, 256, 4096}) bench->Args({count, 0})->Args({count, 1});
}
BENCHMARK(small_gather)->Apply(of_small);
BENCHMARK(small_update)->Apply(of_small);
BENCHMARK(hot_rows)->ArgNames({"count", "skewed"})->Args({256, 0})->Args({256, 1})->Args({8, 1});
BENCHMARK(counting)->ArgNames({"workers"})->Arg(1)->Arg(64);
BENCHMARK(bare_update)->ArgNames({"rows", "dim", "layout", "skewed"})->Apply(of_bare);

}  // namespace
}  // namespace sidereal::exec
