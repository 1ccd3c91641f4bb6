#include <benchmark/benchmark.h>

#include <array>

#include "sidereal/eager/engine.h"
#include "sidereal/eager/local_function.h"
#include "sidereal/eager/tape.h"
#include "sidereal/ir/builder.h"
#include "sidereal/ops/ops.h"

/// What running one op at once costs beside its arithmetic, which is one addition here.
namespace sidereal::eager {
namespace {

void BM_AddScalars(benchmark::State& state) {
  Engine engine;
  const Value x = engine.wrap(Tensor::scalar(1.0F));
  const std::array<const Value*, 2> inputs = {&x, &x};
  const ir::OpSchema& add = *engine.context().registry().find("Add");
  const ir::AttrMap attrs;
  std::vector<Value> outputs;
  for (auto _ : state) {
    outputs.clear();
    benchmark::DoNotOptimize(engine.run(add, inputs, attrs, {}, &outputs));
  }
}
BENCHMARK(BM_AddScalars);

void BM_ReduceSumWithAttributes(benchmark::State& state) {
  Engine engine;
  const Value x = engine.wrap(Tensor::zeros(tensor::DType::kFloat32, {2, 2}));
  const std::array<const Value*, 1> inputs = {&x};
  const ir::OpSchema& sum = *engine.context().registry().find("ReduceSum");
  const ir::AttrMap attrs = {{"axes", std::vector<int64_t>{1}}, {"keep_dims", true}};
  std::vector<Value> outputs;
  for (auto _ : state) {
    outputs.clear();
    benchmark::DoNotOptimize(engine.run(sum, inputs, attrs, {}, &outputs));
  }
}
BENCHMARK(BM_ReduceSumWithAttributes);

/// An op recorded by a tape, and its share of going back.
void BM_AddScalarsAndGradient(benchmark::State& state) {
  constexpr int kOps = 100;
  Engine engine;
  const Value x = engine.wrap(Tensor::scalar(1.0F));
  const ir::OpSchema& mul = *engine.context().registry().find("Mul");
  const std::array<uint64_t, 1> source = {x.id};
  for (auto _ : state) {
    Tape tape;
    tape.watch(x);
    engine.push(&tape);
    std::vector<Value> values = {x};
    values.reserve(kOps + 1);
    for (int i = 0; i < kOps; ++i) {
      const std::array<const Value*, 2> inputs = {&values.back(), &x};
      benchmark::DoNotOptimize(engine.run(mul, inputs, {}, {}, &values));
    }
    engine.remove(&tape);
    benchmark::DoNotOptimize(tape.gradient(engine, std::span(&values.back(), 1), {}, source));
  }
  state.SetItemsProcessed(state.iterations() * kOps);
}
BENCHMARK(BM_AddScalarsAndGradient);

/// A chain of scalar additions as one program: per instruction, and the call itself.
void BM_FunctionOfAdditions(benchmark::State& state) {
  Engine engine;
  FunctionDef def;
  def.name = "chain";
  ir::Builder b(&def.graph, &engine.context().registry());
  const ir::Output x = ops::placeholder(b, "x", tensor::DType::kFloat32, {});
  ir::Output y = x;
  for (int64_t i = 0; i < state.range(0); ++i) y = ops::add(b, y, x);
  def.inputs = {x};
  def.outputs = {y};
  const auto function = std::make_shared<LocalFunction>(std::move(def));
  const Value one = engine.wrap(Tensor::scalar(1.0F));
  const std::array<const Value*, 1> inputs = {&one};
  for (auto _ : state) benchmark::DoNotOptimize(function->call(engine, inputs));
  state.SetItemsProcessed(state.iterations() * state.range(0));
}
BENCHMARK(BM_FunctionOfAdditions)->Arg(1)->Arg(1000);

}  // namespace
}  // namespace sidereal::eager
