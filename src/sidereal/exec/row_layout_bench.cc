// Rows of a variable of a session taken and updated by adagrad, in its two layouts, beside what the
// lanes of fit() do (store::EmbeddingShard). One iteration is one step of a program of one op, with
// fresh row numbers, which are distinct; items are rows.
//   layout 0: weights and slots are arrays of their own; rows are gathered from the value that is
//             read, and equal ids are looked for
//   layout 1: weights and slots lie in one row
#include <benchmark/benchmark.h>

#include <memory>
#include <random>
#include <vector>

#include "sidereal/base/check.h"
#include "sidereal/exec/executor.h"
#include "sidereal/exec/one_op.h"
#include "sidereal/kernels/sparse.h"
#include "sidereal/kernels/thread.h"
#include "sidereal/resources/variable.h"
#include "sidereal/store/embedding_shard.h"

namespace sidereal::exec {
namespace {

using tensor::DType;
using tensor::Shape;
using tensor::Tensor;

constexpr int64_t kIds = 26 * 1024;
constexpr int kBatches = 32;

std::vector<Tensor> draw_batches(int64_t rows) {
  std::vector<Tensor> batches;
  for (int b = 0; b < kBatches; ++b) {
    std::mt19937_64 rng(static_cast<uint64_t>(b));
    std::uniform_int_distribution<int64_t> any(0, rows - 1);
    std::vector<int64_t> ids(kIds);
    for (int64_t& id : ids) id = any(rng);
    kernels::UniqueScratch scratch;
    std::vector<int64_t> distinct(kIds);
    std::vector<int32_t> inverse(kIds);
    distinct.resize(kernels::unique(ids, scratch, distinct.data(), inverse.data()));
    batches.push_back(Tensor::of(Shape{static_cast<int64_t>(distinct.size())}, distinct));
  }
  return batches;
}

/// A table with an adagrad slot, of a session.
class Table {
 public:
  Table(int64_t rows, int64_t dim, bool in_rows) : rows_(rows), dim_(dim) {
    register_kernels(&kernels_);
    environment_.resources = &manager_;
    for (const char* name : {"w", "slot"}) {
      const auto made = *manager_.find_or_create<resources::Variable>(
          name, [name] { return *resources::Variable::make({.name = name}); });
      Tensor value = Tensor::empty(DType::kFloat32, Shape{rows, dim});
      for (float& x : value.data<float>()) x = 0.1F;
      SR_CHECK(made->assign(value).ok());
    }
    // A table that was updated without slots gets none later.
    update(in_rows ? "adagrad" : "sgd");
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
  Op updates(const std::string& kind, bool distinct) {
    std::vector<ir::TensorSpec> inputs = {{DType::kString, {}},
                                          {DType::kInt64, {-1}},
                                          {DType::kFloat32, {-1, dim_}},
                                          {DType::kFloat64, {}},
                                          {DType::kFloat32, {}}};
    if (kind != "sgd") inputs.push_back({DType::kString, {}});
    return bind(one_op_program(node("VariableUpdateRows", {{"kind", kind}, {"distinct", distinct}}),
                               inputs));
  }
  void update(const std::string& kind) {
    Op op = updates(kind, true);
    std::vector<Tensor> inputs = {handle("w"), Tensor::of<int64_t>(Shape{1}, {0}),
                                  Tensor::zeros(DType::kFloat32, Shape{1, dim_}),
                                  Tensor::scalar(1.0), Tensor::scalar(0.1F)};
    if (kind != "sgd") inputs.push_back(handle("slot"));
    run(op, inputs);
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
  int64_t rows_;
  int64_t dim_;
  KernelTable kernels_;
  resources::Manager manager_;
  Environment environment_;
  BufferPool pool_{size_t{256} << 20};
};

void gather(benchmark::State& state) {
  kernels::prepare_thread();
  Table table(state.range(0), state.range(1), state.range(2) != 0);
  Table::Op op = table.gather(state.range(2) == 0);
  const std::vector<Tensor> batches = draw_batches(state.range(0));
  const Tensor handle = Table::handle("w");
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
  Table table(state.range(0), state.range(1), state.range(2) != 0);
  Table::Op op = table.updates("adagrad", state.range(2) != 0);
  const std::vector<Tensor> batches = draw_batches(state.range(0));
  const Tensor handle = Table::handle("w");
  const Tensor slot = Table::handle("slot");
  const Tensor step = Tensor::scalar(1.0);
  const Tensor rate = Tensor::scalar(0.1F);
  std::vector<Tensor> grads;
  for (const Tensor& ids : batches) {
    grads.push_back(Tensor::empty(DType::kFloat32, Shape{ids.num_elements(), state.range(1)}));
    for (float& x : grads.back().data<float>()) x = 1e-3F;
  }
  size_t at = 0;
  int64_t rows = 0;
  for (auto _ : state) {
    const size_t batch = at++ % kBatches;
    Table::run(op, {handle, batches[batch], grads[batch], step, rate, slot});
    rows += batches[batch].num_elements();
  }
  state.SetItemsProcessed(rows);
}

std::unique_ptr<store::EmbeddingShard> make_shard(int64_t rows, int64_t dim) {
  store::EmbeddingOptions options;
  options.name = "table";
  options.layout = kernels::ShardLayout(rows, 1, 1);
  options.dim = dim;
  options.rule = kernels::UpdateRule::of("adagrad", {{"learning_rate", 0.1}});
  options.initializer = {kernels::Initializer::Kind::kUniform, -0.01F, 0.01F, 7, 1};
  auto made = store::EmbeddingShard::create(std::move(options));
  SR_CHECK(made.ok());
  return std::move(made).value();
}

void shard_gather(benchmark::State& state) {
  kernels::prepare_thread();
  const auto shard = make_shard(state.range(0), state.range(1));
  const std::vector<Tensor> batches = draw_batches(state.range(0));
  std::vector<float> out(static_cast<size_t>(kIds * state.range(1)));
  size_t at = 0;
  int64_t rows = 0;
  for (auto _ : state) {
    const Tensor& ids = batches[at++ % kBatches];
    SR_CHECK(shard->gather(ids.data<const int64_t>(), out.data()).ok());
    benchmark::ClobberMemory();
    rows += ids.num_elements();
  }
  state.SetItemsProcessed(rows);
}

void shard_apply(benchmark::State& state) {
  kernels::prepare_thread();
  const auto shard = make_shard(state.range(0), state.range(1));
  const std::vector<Tensor> batches = draw_batches(state.range(0));
  std::vector<Tensor> grads;
  for (const Tensor& ids : batches) {
    grads.push_back(Tensor::empty(DType::kFloat32, Shape{ids.num_elements(), state.range(1)}));
    for (float& x : grads.back().data<float>()) x = 1e-3F;
  }
  size_t at = 0;
  int64_t rows = 0;
  for (auto _ : state) {
    const size_t batch = at++ % kBatches;
    SR_CHECK(
        shard->apply(batches[batch].data<const int64_t>(), grads[batch].data<const float>().data())
            .ok());
    rows += batches[batch].num_elements();
  }
  state.SetItemsProcessed(rows);
}

void tables(benchmark::internal::Benchmark* bench) {
  for (const int64_t rows : {1'000'000, 4'000'000}) {
    for (const int64_t layout : {0, 1}) bench->Args({rows, 16, layout});
  }
}
BENCHMARK(gather)->ArgNames({"rows", "dim", "layout"})->Apply(tables);
BENCHMARK(shard_gather)->ArgNames({"rows", "dim"})->Args({1'000'000, 16})->Args({4'000'000, 16});
BENCHMARK(update)->ArgNames({"rows", "dim", "layout"})->Apply(tables);
BENCHMARK(shard_apply)->ArgNames({"rows", "dim"})->Args({1'000'000, 16})->Args({4'000'000, 16});

}  // namespace
}  // namespace sidereal::exec
